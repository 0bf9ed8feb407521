"""Defines the types of tool calling: specs, calls, outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent_magics.protocol.items import Content, Json, OutputKind, text_of


class FunctionToolSpec:
    """Specification of a tool that is called with JSON arguments.

    Attributes:
        name: the name the model calls, ``^[a-zA-Z0-9_-]{1,64}$``.
        description: its description for the model.
        parameters: JSON schema (an object) of the arguments.
        strict: whether the provider may be asked to enforce `parameters` exactly.
        strict_reason: why `strict` is False, or "".
    """

    kind = "function"

    def __init__(
        self,
        name: str,
        description: str,
        parameters: dict[str, Json],
        strict: bool = False,
        strict_reason: str = "",
    ):
        self.name = name
        self.description = description
        self.parameters = parameters
        self.strict = strict
        self.strict_reason = strict_reason

    def __repr__(self) -> str:  # the name alone: other fields may be derived, which may fail
        return f"FunctionToolSpec({self.name!r})"


@dataclass(frozen=True, slots=True)
class DynamicToolSpec:
    """Specification of a tool that an external client runs; its calls are assumed to change
    something.

    Attributes:
        name: the name the model calls, ``^[a-zA-Z0-9_-]{1,64}$``.
        description: its description for the model.
        input_schema: JSON schema of the arguments, in any dialect.
    """

    name: str
    description: str
    input_schema: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FreeformToolSpec:
    """Specification of a tool called with plain text; `definition` is a grammar in `syntax` ("lark"
    or "regex").
    """

    name: str
    description: str
    syntax: str
    definition: str
    kind = "freeform"


@dataclass(frozen=True, slots=True)
class LocalShellSpec:
    """Specification of the Responses API's built-in shell tool."""

    name: str = "local_shell"
    kind = "local_shell"


@dataclass(frozen=True, slots=True)
class WebSearchSpec:
    """Specification of the Responses API's built-in web search."""

    external_web_access: bool | None = None
    name: str = "web_search"
    kind = "web_search"


ToolSpec: TypeAlias = FunctionToolSpec | FreeformToolSpec | LocalShellSpec | WebSearchSpec


@dataclass(frozen=True, slots=True)
class ConfiguredToolSpec:
    """A tool specification, and whether calls of the tool may run concurrently."""

    spec: ToolSpec
    supports_parallel_tool_calls: bool = False


@dataclass(slots=True)
class FunctionPayload:
    """Arguments of a function tool call, as the model's JSON text."""

    arguments: str
    output_kind: OutputKind = "function"


@dataclass(frozen=True, slots=True)
class CustomPayload:
    """Input of a freeform tool call, as the model's text."""

    input: str
    output_kind: OutputKind = "custom"


@dataclass(frozen=True, slots=True)
class LocalShellPayload:
    """Command of a built-in shell call; `timeout_ms` is in milliseconds."""

    command: tuple[str, ...]
    workdir: str | None = None
    timeout_ms: int | None = None
    output_kind: OutputKind = "local_shell"


@dataclass(frozen=True, slots=True)
class McpPayload:
    """Arguments of a call of an MCP server's tool, as the model's JSON text."""

    server: str
    tool: str
    raw_arguments: str
    output_kind: OutputKind = "function"


ToolPayload: TypeAlias = FunctionPayload | CustomPayload | LocalShellPayload | McpPayload


@dataclass(slots=True)
class ToolCall:
    """One tool call as parsed from the model's response, before its tool is looked up and its
    arguments validated.
    """

    tool_name: str
    call_id: str
    payload: ToolPayload
    parent_call_id: str | None = None


@dataclass(slots=True)
class ToolOutput:
    """The result of a tool call.

    Attributes:
        content: text or parts for the model.
        success: whether the call did what was asked.
        details: JSON shown to people beside it, never sent to the model.
        value: the Python value itself, for callers in the same process; never serialised.
        is_fitted: whether `content` was already truncated to the call's budget; what remains (an
            exit code, the place of the whole output) is then sent in full.
    """

    content: Content
    success: bool = True
    details: Mapping[str, Json] = field(default_factory=dict)
    value: Any = None
    is_fitted: bool = field(default=False, compare=False)

    @property
    def text(self) -> str:
        """The content as text, with "[image]" for an image."""
        return text_of(self.content)
