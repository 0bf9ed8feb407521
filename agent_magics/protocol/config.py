"""Defines the table of settings: one dataclass field per setting, with type, default and metadata.

Everything else about a setting is made from its field: the keyword of `Agent`, the trait of
`AgentMagics`, the option of `%%agent`, the key of configuration files, completion, `%agent status`
and the page of the reference. So a new setting is one field here and the code that uses it; for
editors and readers also its type in `settings.keywords`, and a line in the docstring of `Agent`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Flag, StrEnum, auto
from pathlib import Path
from typing import Annotated, Any, Literal

DEFAULT_MODEL = "gpt-5.5"


class ApprovalPolicy(StrEnum):
    """Approval policy: when the person is asked before a tool call runs."""

    UNTRUSTED = "untrusted"
    ON_REQUEST = "on-request"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class SandboxPolicy(StrEnum):
    """Sandbox policy: which files and networks a shell command may access."""

    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    DANGER_FULL_ACCESS = "danger-full-access"


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """Thresholds for stopping a model that repeats itself; `engine.repetition.detector` counts.

    Attributes:
        identical: repetitions in a row of the same call with the same result.
        near_identical: the same, for calls that differ only in numbers, case and white space.
        periods: rounds through the same sequence of two to four different calls.
        changing: repetitions in a row of one call whose result changes, and of polling in any case.
        texts: repetitions in a row of the same text beside the calls.
        patience: further repetitions after the model was warned, until the person is asked.
        notes: warnings to the model in one turn; at the next one the person is asked instead.
        nested: repetitions in a row of the same call with the same result by the model's own code;
            the code is warned, and nobody is asked.
    """

    identical: int = 3
    near_identical: int = 5
    periods: int = 3
    changing: int = 30
    texts: int = 4
    patience: int = 2
    notes: int = 3
    nested: int = 200


class Where(Flag):
    """Sources from which a setting can come, besides the keywords of `Agent`."""

    CELL = auto()  # an option of %%agent, for that cell alone
    NOTEBOOK = auto()  # %config AgentMagics.NAME, and Jupyter's own configuration files
    USER = auto()  # the person's config.toml
    PROJECT = auto()  # the project's trusted files, which may only make it stricter


NOTEBOOK = Where.NOTEBOOK
FILES = Where.NOTEBOOK | Where.USER
CELL = FILES | Where.CELL


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Metadata of a setting beside its type and default.

    Attributes:
        help: a description of one sentence.
        where: the sources from which it can come.
        option: names of the `%%agent` option, separated by spaces; "" means
            `--name-of-the-setting`.
        metavar: placeholder for the value in the help of that option.
        least: the least value of a number, or length of a text; None where there is none.
        above: what a number must be greater than; None where that does not matter.
        strictest_first: the values, strictest first, where a project may make it stricter and the
            values are neither numbers (smaller is stricter) nor booleans (False is stricter).
        variable: an environment variable that also sets it.
        in_notebook: the default in a notebook, where it differs.
    """

    help: str
    where: Where = FILES
    option: str = ""
    metavar: str | None = None
    least: int | None = None
    above: int | None = None
    strictest_first: tuple[str, ...] = ()
    variable: str = ""
    in_notebook: Any = None


class Folder:
    """Marks a setting whose path must be an existing folder."""


class Address:
    """Marks the address of a model server."""


class CheckedByUser:
    """Marks a setting that is validated where it is used, not by pydantic."""


class Features:
    """Marks the mapping of model features; `models` validates its names and values."""


PythonPlace = Literal["live", "scratch", "off"]
WireApi = Literal["auto", "responses", "chat"]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Settings of one run, readable by tools."""

    model: Annotated[
        str,
        Setting(help="The model's name at the provider.", where=CELL, option="--model -m", least=1),
    ] = DEFAULT_MODEL
    cwd: Annotated[
        Path,
        Folder,
        Setting(
            help="The workspace: relative paths start here, files may be written below it.",
            where=NOTEBOOK,
        ),
    ] = Path()
    instructions: Annotated[
        str | None, Setting(help="Added to the built-in instructions for the model.")
    ] = None
    approval: Annotated[
        ApprovalPolicy,
        Setting(
            help="When a person is asked before a call runs.",
            where=CELL | Where.PROJECT,
            strictest_first=tuple(ApprovalPolicy),
        ),
    ] = ApprovalPolicy.ON_REQUEST
    sandbox: Annotated[
        SandboxPolicy,
        Setting(
            help="What commands may touch.",
            where=CELL | Where.PROJECT,
            strictest_first=tuple(SandboxPolicy),
        ),
    ] = SandboxPolicy.WORKSPACE_WRITE
    network: Annotated[
        bool,
        Setting(
            help="Whether sandboxed commands reach ports 80 and 443 of other machines; where they "
            "do not, each command that needs it asks.",
            where=FILES | Where.PROJECT,
        ),
    ] = False
    writable_roots: Annotated[
        tuple[Annotated[Path, Folder], ...],
        Setting(help="More folders below which files may be written; they must exist."),
    ] = ()
    max_turns: Annotated[
        int,
        Setting(
            help="Requests to the model in one run, before it ends politely.",
            where=CELL | Where.PROJECT,
            least=1,
        ),
    ] = 100
    max_tokens: Annotated[
        int | None,
        Setting(
            help="Tokens of one run, in and out, likewise.", where=CELL | Where.PROJECT, least=1
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        Setting(
            help="What one run may cost in USD, likewise.",
            where=CELL | Where.PROJECT,
            metavar="USD",
            above=0,
        ),
    ] = None
    python: Annotated[
        PythonPlace,
        Setting(
            help="Where the model's Python code runs: in the kernel, beside it, or nowhere.",
            where=FILES | Where.PROJECT,
            strictest_first=("off", "scratch", "live"),
        ),
    ] = "live"
    output_budget: Annotated[
        int,
        Setting(
            help="Characters that the model reads of one call's output.",
            where=FILES | Where.PROJECT,
            least=1,
        ),
    ] = 10_000
    context_window: Annotated[
        int | None,
        Setting(help="Tokens that the model can read; None is what is known of it.", least=1),
    ] = None
    loops: Annotated[
        LoopLimits,
        Setting(help="When repetition is stopped: a `LoopLimits`, or some of its fields."),
    ] = LoopLimits()
    allow_dangerous: Annotated[
        bool,
        Setting(
            help="Whether dangerous commands run under approval='never'.",
            where=FILES | Where.PROJECT,
        ),
    ] = False
    check_edits: Annotated[
        bool,
        Setting(
            help="Whether the answer of an edit names the errors that it has brought, where a "
            "language server runs.",
        ),
    ] = True
    features: Annotated[
        Mapping[str, Any],
        Features,
        Setting(
            help="What is switched on ({'web_search': True}), or chosen otherwise than for the "
            "model's family.",
        ),
    ] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders below which files may be written: the workspace, then the extra ones."""
        return (self.cwd, *self.writable_roots)


@dataclass(frozen=True, slots=True)
class Settings(RunConfig):
    """All settings of an agent: those of a run, and those hidden from tools."""

    name: Annotated[
        str,
        Setting(
            help="Which agent; each has its own conversation.",
            where=NOTEBOOK | Where.CELL,
            least=1,
        ),
    ] = "default"
    tools: Annotated[
        # Names, functions or handlers; the tool catalogue, a layer above, validates them.
        Sequence[Any] | str | None,
        CheckedByUser,
        Setting(
            help="Tools that are offered: names, sets such as data, own functions; None is the set "
            "coding, in a notebook data.",
            where=NOTEBOOK | Where.CELL,
            in_notebook=("data",),
        ),
    ] = None
    # A repr shows neither the key nor what may hold one.
    base_url: Annotated[
        str | None,
        Address,
        Setting(help="An OpenAI-compatible server.", variable="OPENAI_BASE_URL"),
    ] = field(default=None, repr=False)
    api_key: Annotated[
        str | None,
        Setting(help="The key for the server.", where=Where(0), variable="OPENAI_API_KEY"),
    ] = field(default=None, repr=False)
    wire_api: Annotated[
        WireApi,
        Setting(help="How the server is spoken to: auto is Responses where the server has it."),
    ] = "auto"
    mcp_servers: Annotated[
        Mapping[str, Any] | None,
        CheckedByUser,
        Setting(
            help="MCP servers: {'name': {'command': ..., 'args': [...]}} or {'url': ...}.",
            where=NOTEBOOK,
        ),
    ] = field(default=None, repr=False)
    language_servers: Annotated[
        Mapping[str, Any] | None,
        CheckedByUser,
        Setting(
            help="Language servers: {'python': {'command': ..., 'args': [...]}}; False is none.",
        ),
    ] = field(default=None, repr=False)
    replay: Annotated[
        str | Path | None,
        Setting(
            help="A recording to play the model's side from; auto is x.agent.jsonl beside x.ipynb.",
            where=NOTEBOOK | Where.CELL,
            metavar="FILE",
            in_notebook="auto",
        ),
    ] = None
    replay_strict: Annotated[
        bool, Setting(help="Whether drift from the recording is an error.", where=NOTEBOOK)
    ] = False
    record: Annotated[
        str | Path | None,
        Setting(
            help="A file to record the model's side to.",
            where=NOTEBOOK | Where.CELL,
            metavar="FILE",
        ),
    ] = None
    on_question: Annotated[
        Callable[[Any], Any] | None,
        Setting(help="A function that answers questions in programs.", where=Where(0)),
    ] = None
    hooks: Annotated[
        Sequence[Any],
        CheckedByUser,
        Setting(
            help="Objects with before_tool, after_tool, before_model or on_event.", where=NOTEBOOK
        ),
    ] = ()
    tool_budget: Annotated[
        int,
        Setting(help="Estimated tokens of all tools, above which some are deferred.", least=0),
    ] = 10_000
    rollout_days: Annotated[
        int,
        Setting(help="Days with work for which recorded conversations are kept.", least=1),
    ] = 90


def run_config(settings: Settings, **changes: Any) -> RunConfig:
    """Return the subset of `settings` that tools may read, with `changes`."""
    values = {each.name: getattr(settings, each.name) for each in fields(RunConfig)}
    return RunConfig(**{**values, **changes})
