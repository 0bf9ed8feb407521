"""What can be set for a run, with its defaults."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

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
class RunConfig:
    """What holds for one run; a magic's options replace fields of it for their cell alone.

    Attributes:
        output_budget: characters of one call's output that the model reads (spec: 10,000).
        max_turns: model requests of one run before it ends politely.
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
    python: str = "live"
    output_budget: int = 10_000
    allow_dangerous: bool = False
    features: dict[str, bool] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders below which files may be written: the workspace, then the extra ones."""
        return (self.cwd, *self.writable_roots)
