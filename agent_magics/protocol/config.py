"""What can be set for a run, with its defaults."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from agent_magics.protocol.errors import FatalError

DEFAULT_MODEL = "gpt-5.5"

E = TypeVar("E", bound=StrEnum)


class ApprovalPolicy(StrEnum):
    """When a person is asked before a call runs."""

    UNTRUSTED = "untrusted"
    ON_REQUEST = "on-request"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class SandboxPolicy(StrEnum):
    """What a command may touch."""

    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    DANGER_FULL_ACCESS = "danger-full-access"


def parse_choice(kind: type[E], value: str, option: str) -> E:
    """Return the member of `kind` named `value`.

    Raises:
        FatalError: `value` is none of them; the sentence names `option` and the choices.
    """
    try:
        return kind(value)
    except ValueError:
        choices = " | ".join(kind)
        raise FatalError(f"{option}={value!r} is not one of: {choices}.") from None


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """When a model that goes round in circles is told so; `engine.loop_guard` says what is counted.

    Attributes:
        identical: the same call with the same result, so many times in a row.
        near_identical: the same but for numbers, case and white space, with the same result.
        periods: a row of two to four different calls, gone through so many times.
        changing: the same call in a row while its result changes, and polling in any case.
        texts: the same words beside the calls, so many times in a row.
        patience: after the model was told, so many repetitions more until the person is asked.
        notes: so often in one turn the model is told; the next time the person is asked.
        nested: the same call with the same result, made in a row by the model's code; it is told
            so, and nobody is asked.
    """

    identical: int = 3
    near_identical: int = 5
    periods: int = 3
    changing: int = 30
    texts: int = 4
    patience: int = 2
    notes: int = 3
    nested: int = 200


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What holds for one run; a magic's options replace fields of it for their cell alone.

    Attributes:
        output_budget: characters of one call's output that the model reads (spec: 10,000).
        max_turns: model requests of one run before it ends politely.
        max_tokens: its input and output tokens, likewise; None is no limit.
        max_cost: its cost in USD, likewise.
        context_window: tokens that the model can read; None is what is known of the model.
        loops: when a model that repeats itself is told so.
    """

    model: str = DEFAULT_MODEL
    cwd: Path = Path()
    instructions: str = ""
    approval: ApprovalPolicy = ApprovalPolicy.ON_REQUEST
    sandbox: SandboxPolicy = SandboxPolicy.WORKSPACE_WRITE
    network: bool = False
    writable_roots: tuple[Path, ...] = ()
    max_turns: int = 100
    max_tokens: int | None = None
    max_cost: float | None = None
    python: str = "live"
    output_budget: int = 10_000
    context_window: int | None = None
    loops: LoopLimits = LoopLimits()
    allow_dangerous: bool = False
    features: dict[str, Any] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders below which files may be written: the workspace, then the extra ones."""
        return (self.cwd, *self.writable_roots)
