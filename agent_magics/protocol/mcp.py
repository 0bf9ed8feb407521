"""Defines the types of the Model Context Protocol for the other folders, without SDK types."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from agent_magics.protocol.items import ContentPart, Json


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """Configuration of one MCP server: how to connect to it, and which of its tools may be used.

    Attributes:
        name: the unique name by which people refer to it.
        command, args, env, env_vars, cwd: a program that is run over standard input and output;
            `env` sets variables, `env_vars` names variables to copy from our environment.
        url, transport: a server reached over HTTP; "sse" is the older of its two transports.
        headers: sent with each HTTP request.
        bearer_token_env_var: the environment variable that holds a token for the server.
        oauth_client_id: how the server's login knows us, where a person registered us beforehand.
        oauth_client_secret_env_var: the environment variable that holds the secret of that.
        oauth_issuer: the address of the login server that this secret may be sent to; None is one
            at the address of `url`.
        oauth_callback_port: the port on loopback to which that login returns; None is any.
        required: whether a run fails, with one sentence, if the server does not start.
        enabled_tools, disabled_tools: names of tools; None means all of them.
        startup_timeout_sec, tool_timeout_sec: limits in seconds for a start and for a call.
        supports_parallel_tool_calls: whether its calls may run concurrently.
        approval_mode: "auto" asks according to the policy and the tools' hints, "prompt" asks
            always, "approve" never.
        source: the file and line where it is configured, or "Agent(mcp_servers=...)".
    """

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # it holds keys
    env_vars: tuple[str, ...] = ()
    cwd: Path | None = None
    url: str | None = None
    transport: Literal["stdio", "http", "sse"] = "stdio"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    bearer_token_env_var: str | None = None
    oauth_client_id: str | None = None
    oauth_client_secret_env_var: str | None = None
    oauth_issuer: str | None = None
    oauth_callback_port: int | None = None
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
    """State of the connection to a server."""

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

    The four hints from `read_only` to `open_world` are the server's own claims, not facts; None
    where it makes none. See "Tool annotations" in the MCP specification.
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
    """A snapshot of a server's state.

    Attributes:
        message: one sentence on why it is not ready.
        instructions: the server's instructions for models; untrusted text.
        version: the server's own version.
        restarts: number of restarts after it ended unexpectedly.
        left_out: tools that are not offered, as (name, reason).
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
    """Binary content that is not an image, such as audio or an archive; `data` is base64 text."""

    data: str
    mime_type: str
    uri: str = ""


@dataclass(frozen=True, slots=True)
class McpResult:
    """The result of a call of an MCP tool; no part repeats another.

    Attributes:
        content: text and images, in the server's order; links and embedded text resources as text.
        blobs: content that a model cannot read.
        structured: `structuredContent`; None where there is none.
        is_error: whether the tool reports a failure.
    """

    content: tuple[ContentPart, ...] = ()
    blobs: tuple[McpBlob, ...] = ()
    structured: Json = None
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class McpResource:
    """A resource of a server, or (with `{...}` in `uri`) a template of resources."""

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
    """A server's request for input from the person: a form's `schema`, or a `url` to visit."""

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
    """A server's request for a completion by our model; `messages` are (role, text)."""

    server: str
    messages: tuple[tuple[str, str], ...]
    system: str = ""
    max_tokens: int = 1000


class McpCallbacks(Protocol):
    """Receives what an MCP server sends during a call of one of its tools."""

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Receive progress of the call."""

    def log(self, level: str, text: str) -> None:
        """Receive a log message of the server."""

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask the person a question of the server."""

    async def sample(self, request: Sampling) -> str | None:
        """Return a completion by our model; None where the person or the settings refuse."""
