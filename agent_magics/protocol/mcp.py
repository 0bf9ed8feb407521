"""The nouns of the Model Context Protocol as the rest of the house knows them: no SDK type here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from agent_magics.protocol.items import ContentPart, Json


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """How one server is reached, and what of it may be used.

    Attributes:
        name: what people call it; unique.
        command, args, env, env_vars, cwd: a program that speaks over its standard streams; `env`
            gives variables their values, `env_vars` names those of ours that pass.
        url, transport: a server reached over HTTP; "sse" is the older of its two ways.
        headers: sent with each request over HTTP.
        bearer_token_env_var: the variable of ours that holds a token for the server.
        required: a run fails with one sentence where the server does not start.
        enabled_tools, disabled_tools: names of tools; None is all of them.
        startup_timeout_sec, tool_timeout_sec: seconds until a start, or a call, is given up.
        supports_parallel_tool_calls: its calls may run side by side.
        approval_mode: "auto" asks as the tools' own hints and the policy say, "prompt" asks always,
            "approve" never.
        source: the file and line that say all this, or "Agent(mcp_servers=...)".
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # there are keys in it
    env_vars: tuple[str, ...] = ()
    cwd: Path | None = None
    url: str | None = None
    transport: Literal["stdio", "http", "sse"] = "stdio"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer_token_env_var: str | None = None
    enabled: bool = True
    required: bool = False
    enabled_tools: tuple[str, ...] | None = None
    disabled_tools: tuple[str, ...] = ()
    startup_timeout_sec: float = 10.0
    tool_timeout_sec: float = 60.0
    supports_parallel_tool_calls: bool = False
    approval_mode: Literal["auto", "prompt", "approve"] = "auto"
    source: str = ""


class McpStatus(StrEnum):
    """Where a server stands."""

    DISABLED = "disabled"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    NEEDS_LOGIN = "needs login"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool as its server describes it.

    `read_only` and the next three are the server's own hints (None where it says nothing): they
    are claims, not facts.
    """

    server: str
    name: str
    description: str = ""
    title: str = ""
    input_schema: Mapping[str, Json] = field(default_factory=dict)
    output_schema: Mapping[str, Json] | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None


@dataclass(frozen=True, slots=True)
class McpServerState:
    """A server as it is at this moment.

    Attributes:
        message: one sentence where it is not ready.
        instructions: what the server says of itself to models; written by others.
        version: its own.
        restarts: how often it was started again after it had ended by itself.
        left_out: tools that are not offered, as (name, why).
    """

    config: McpServerConfig
    status: McpStatus
    message: str = ""
    instructions: str = ""
    version: str = ""
    tools: tuple[McpTool, ...] = ()
    restarts: int = 0
    has_resources: bool = False
    has_prompts: bool = False
    left_out: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class McpBlob:
    """Bytes that are neither text nor an image: audio, an archive; base64 as on the wire."""

    data: str
    mime_type: str
    uri: str = ""


@dataclass(frozen=True, slots=True)
class McpResult:
    """What a call of a tool gave back; nothing of it stands for another part.

    Attributes:
        content: text and images, in the server's order; links and embedded text resources as text.
        blobs: what a model cannot read.
        structured: `structuredContent`; None where there is none.
        is_error: the tool says that it failed.
    """

    content: tuple[ContentPart, ...] = ()
    blobs: tuple[McpBlob, ...] = ()
    structured: Json = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class McpResource:
    """A resource, or (with `{...}` in `uri`) a template of resources."""

    server: str
    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class McpContents:
    """One part of a resource that was read: either `text` or `blob` (base64)."""

    uri: str
    mime_type: str = ""
    text: str | None = None
    blob: str | None = None


@dataclass(frozen=True, slots=True)
class McpPrompt:
    """A prompt that a server offers; `arguments` are (name, description, required)."""

    server: str
    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[tuple[str, str, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class McpPage:
    """One page of a list; `next_cursor` is "" at the end."""

    items: tuple[McpResource, ...] = ()
    next_cursor: str = ""


@dataclass(frozen=True, slots=True)
class Elicitation:
    """A server asks the person: `schema` is a form's, or `url` an address to visit."""

    server: str
    message: str
    schema: Mapping[str, Json] = field(default_factory=dict)
    url: str = ""


@dataclass(frozen=True, slots=True)
class ElicitationAnswer:
    """The person's answer; `content` holds the form's fields where they accepted."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sampling:
    """A server asks for an answer of our model; `messages` are (role, text)."""

    server: str
    messages: tuple[tuple[str, str], ...]
    system: str = ""
    max_tokens: int = 1000


class McpDesk(Protocol):
    """Who a server speaks to while a call of one of its tools is under way."""

    def progress(self, done: float, total: float | None, message: str) -> None:
        """News of the call."""

    def log(self, level: str, text: str) -> None:
        """A log message of the server."""

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Put a question of the server to the person."""

    async def sample(self, request: Sampling) -> str | None:
        """Answer with the model's words; None where the person or the settings say no."""
