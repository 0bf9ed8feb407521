"""The nouns of tool calling: what a tool offers, how a call arrives, what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent_magics.protocol.items import Content, Json, OutputKind, text_of


class FunctionToolSpec:
    """A tool called with JSON arguments.

    Attributes:
        name: the name the model calls, ``^[a-zA-Z0-9_-]{1,64}$``.
        description: what the model reads about it.
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

    def __repr__(self) -> str:
        return f"FunctionToolSpec({self.name!r}, strict={self.strict})"


@dataclass(frozen=True, slots=True)
class DynamicToolSpec:
    """A tool that is described by data, not by a function; its calls may always change something.

    Attributes:
        name: the name the model calls, ``^[a-zA-Z0-9_-]{1,64}$``.
        input_schema: JSON schema of the arguments, in whatever dialect its author writes.
    """

    name: str
    description: str
    input_schema: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FreeformToolSpec:
    """A tool called with plain text; `definition` is a grammar in `syntax` ("lark" or "regex")."""

    name: str
    description: str
    syntax: str
    definition: str
    kind = "freeform"


@dataclass(frozen=True, slots=True)
class LocalShellSpec:
    """The Responses API's built-in shell tool."""

    name: str = "local_shell"
    kind = "local_shell"


@dataclass(frozen=True, slots=True)
class WebSearchSpec:
    """The Responses API's built-in web search."""

    external_web_access: bool | None = None
    name: str = "web_search"
    kind = "web_search"


ToolSpec: TypeAlias = FunctionToolSpec | FreeformToolSpec | LocalShellSpec | WebSearchSpec


@dataclass(frozen=True, slots=True)
class ConfiguredToolSpec:
    """A spec as it is offered: with the word on whether its calls may run side by side."""

    spec: ToolSpec
    supports_parallel_tool_calls: bool = False


@dataclass(slots=True)
class FunctionPayload:
    """Arguments as the model's own JSON text."""

    arguments: str
    output_kind: OutputKind = "function"


@dataclass(frozen=True, slots=True)
class CustomPayload:
    """Freeform input as the model's own text."""

    input: str
    output_kind: OutputKind = "custom"


@dataclass(frozen=True, slots=True)
class LocalShellPayload:
    """The native shell call's action."""

    command: tuple[str, ...]
    workdir: str | None = None
    timeout_ms: int | None = None
    output_kind: OutputKind = "local_shell"


@dataclass(frozen=True, slots=True)
class McpPayload:
    """A call that goes to a tool of an MCP server."""

    server: str
    tool: str
    raw_arguments: str
    output_kind: OutputKind = "function"


ToolPayload: TypeAlias = FunctionPayload | CustomPayload | LocalShellPayload | McpPayload


@dataclass(slots=True)
class ToolCall:
    """One call as the router understood it, not yet looked up or checked."""

    tool_name: str
    call_id: str
    payload: ToolPayload
    parent_call_id: str | None = None


@dataclass(slots=True)
class ToolOutput:
    """What a tool gave back.

    Attributes:
        content: what the model reads, text or parts.
        success: False when the call did not do what was asked.
        details: what people are shown beside it (JSON), never sent to the model.
        value: the Python value itself, for callers in the same process; never serialised.
    """

    content: Content
    success: bool = True
    details: Mapping[str, Json] = field(default_factory=dict)
    value: Any = None

    @property
    def text(self) -> str:
        """The content as text; images are named."""
        return text_of(self.content)
