"""One live connection to a server, on the SDK's client; imports the SDK, so it is imported late."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from agent_magics._version import __version__
from agent_magics.backends.mcp.calls import Calls
from agent_magics.backends.mcp.changes import Changes
from agent_magics.backends.mcp.endings import HandshakeRefused, LinkLost, LoginNeeded
from agent_magics.backends.mcp.faults import (
    core_of,
    describe,
    meaning_of,
)
from agent_magics.backends.mcp.http import HttpTransport
from agent_magics.backends.mcp.logs import LogRing
from agent_magics.backends.mcp.redaction import Redactor
from agent_magics.backends.mcp.results import (
    contents_of,
    message_of,
    prompt_of,
    resource_of,
)
from agent_magics.backends.mcp.sieve import ListingSieve
from agent_magics.backends.mcp.stdio import StdioTransport
from agent_magics.backends.mcp.surroundings import Surroundings
from agent_magics.backends.mcp.tool_choice import chosen_tools
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import Content, Json
from agent_magics.protocol.mcp import (
    McpContents,
    McpDesk,
    McpPage,
    McpPrompt,
    McpResult,
    McpServerConfig,
    McpTool,
)

_MOST_PAGES = 100
_NOT_KNOWN = (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION)
# A library's warnings would else stand in the person's cells.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Link:
    """A connection: entered once by its owner, used by whoever calls.

    Attributes:
        tools: what can be called, by name.
        left_out: name -> why it cannot.
        instructions, version, has_resources, has_prompts: what the server says of itself.
        over: it has ended, or must be.
        stale: the server says that its tools have changed.
        unauthorized: the server wants a login.
        ending: how it ended, in a few words; None as long as it is open.
        on_updated: is told the URI of a resource that has changed.
    """

    def __init__(
        self,
        config: McpServerConfig,
        around: Surroundings,
        log: LogRing,
        redact: Redactor,
        ring: Callable[[], None],
    ) -> None:
        self._config = config
        self._around = around
        self._log = log
        self._redact = redact
        self._ring = ring
        self._sieve = ListingSieve()
        self._transport = self._make_transport()
        self._client: Client | None = None
        self._calls = Calls(config, around.roots, log)
        self._changes = Changes(self._log, self._mark_stale, self._tell_updated)
        self.tools: dict[str, McpTool] = {}
        self.left_out: dict[str, str] = {}
        self.instructions = self.version = ""
        self.has_resources = self.has_prompts = False
        self.over = self.stale = self.unauthorized = False
        self.ending: str | None = None
        self.on_updated: Callable[[str], None] = _ignore

    # -- for the owner -------------------------------------------------------------------------

    async def open(self, stack: AsyncExitStack, handshake: str) -> None:
        """Connect; `stack` is what closes it.

        Args:
            stack: the owner's; it is left in the same task.
            handshake: "legacy" as all servers before 2026 know it, "auto" where one refused that.

        Raises:
            RespondToModel: it cannot be started.
            HandshakeRefused: another handshake may be tried.
            Exception: of any kind; see `what_failed`.
        """
        self._client = Client(
            self._transport,
            mode=handshake,
            cache=None,
            client_info=types.Implementation(name="agent-magics", version=__version__),
            log_level="info",
            list_roots_callback=self._calls.list_roots,
            logging_callback=self._calls.take_log,
            elicitation_callback=self._calls.elicit,
            sampling_callback=self._calls.sample,
            message_handler=self._take_notice,
        )
        try:
            await stack.enter_async_context(self._client)
        except (MCPError, ExceptionGroup) as error:
            core = core_of(error)
            if isinstance(core, MCPError) and core.code in _NOT_KNOWN:
                raise HandshakeRefused from None
            raise
        stack.push_async_callback(self._changes.end)
        self._calls.begin(self._client)
        self._describe()

    async def list_tools(self) -> None:
        """Ask for all tools, page by page; they replace those that were known.

        Raises:
            RespondToModel: the server does not give them.
            LinkLost: the connection ended.
        """
        if self._client.server_capabilities.tools is None:
            return
        self._sieve.take()  # of a listing that failed
        found: list[types.Tool] = []
        cursors: set[str] = set()
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            with self._told("tools/list"), self._sieve.at_work(self._client.protocol_version):
                page = await self._client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if not cursor:
                break
            if cursor in cursors:
                self._log.note("its list of tools comes back to where it was; cut there")
                break
            cursors.add(cursor)
        else:
            self._log.note(f"its list of tools has more than {_MOST_PAGES} pages; cut there")
        malformed = self._sieve.take()
        self.tools, self.left_out = chosen_tools(self._config, found, malformed, self._log)

    def how_it_ended(self) -> str:
        """Say how it ended, in a few words; "" where nothing is known."""
        return self._transport.ending

    def what_failed(self, error: BaseException) -> str:
        """Take note of an error that ended the connection; say in a few words what it was."""
        wanted = isinstance(core_of(error), LoginNeeded)
        self.unauthorized = self.unauthorized or wanted or self._transport.unauthorized
        return ": ".join(filter(None, (self._transport.status, describe(error))))

    # -- for those who call --------------------------------------------------------------------

    async def call_tool(self, tool: str, arguments: Mapping[str, Json], desk: McpDesk) -> McpResult:
        """Call a tool.

        Raises:
            RespondToModel: the server refused it, or took too long.
            LinkLost: the connection ended meanwhile.
        """
        try:
            return await self._calls.call(tool, arguments, desk)
        except MCPError as error:
            raise self.meaning_of(error, f"the tool {tool!r}") from None

    async def list_resources(self, cursor: str) -> McpPage:
        """Return a page of resources."""
        return await self._page(self._client.list_resources, "resources", cursor)

    async def list_resource_templates(self, cursor: str) -> McpPage:
        """Return a page of templates."""
        ask = self._client.list_resource_templates
        return await self._page(ask, "resource_templates", cursor)

    async def read_resource(self, uri: str) -> tuple[McpContents, ...]:
        """Return a resource."""
        self._need(self.has_resources, "resources")
        with self._told(f"the resource {uri}"):
            answer = await self._client.read_resource(uri)
        return tuple(contents_of(part) for part in answer.contents)

    async def subscribe(self, uri: str) -> None:
        """Have the server tell when a resource changes."""
        capability = self._client.server_capabilities.resources
        self._need(bool(capability and capability.subscribe), "subscriptions to resources")
        if self._is_modern():
            self._changes.follow(self._client, uri, resource_subscriptions=[uri])
            return
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        with self._told(f"the resource {uri}"):
            await self._client.session.send_request(request, types.EmptyResult)

    async def unsubscribe(self, uri: str) -> None:
        """Have it tell no more."""
        if self._is_modern():
            self._changes.leave(uri)
            return
        request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
        with self._told(f"the resource {uri}"):
            await self._client.session.send_request(request, types.EmptyResult)

    async def list_prompts(self) -> tuple[McpPrompt, ...]:
        """Return all prompts."""
        self._need(self.has_prompts, "prompts")
        found: list[types.Prompt] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            with self._told("prompts/list"):
                page = await self._client.list_prompts(cursor=cursor)
            found += page.prompts
            if not page.next_cursor or page.next_cursor == cursor:
                break
            cursor = page.next_cursor
        return tuple(prompt_of(self._config.name, each) for each in found)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str]
    ) -> tuple[tuple[str, Content], ...]:
        """Return a prompt's messages."""
        self._need(self.has_prompts, "prompts")
        with self._told(f"the prompt {name!r}"):
            answer = await self._client.get_prompt(name, dict(arguments))
        return tuple(message_of(message) for message in answer.messages)

    async def _page(self, ask: Callable[..., Any], what: str, cursor: str) -> McpPage:
        self._need(self.has_resources, "resources")
        with self._told(f"{what}/list"):
            answer = await ask(cursor=cursor or None)
        items = tuple(resource_of(self._config.name, each) for each in getattr(answer, what))
        return McpPage(items, answer.next_cursor or "")

    def _need(self, has: bool, what: str) -> None:
        if not has:
            raise RespondToModel(f"The MCP server {self._config.name!r} has no {what}.")

    # -- what the server says ------------------------------------------------------------------

    def _describe(self) -> None:
        client = self._client
        capabilities = client.server_capabilities
        self.instructions = client.instructions or ""
        self.version = client.server_info.version if client.server_info else ""
        self.has_resources = capabilities.resources is not None
        self.has_prompts = capabilities.prompts is not None
        # A result is what the server says. Its schema is the server's too: to check one by the
        # other would run patterns of a stranger on the loop, and lose the result where they differ.
        client.session.validate_tool_result = _take_as_it_is
        if self._is_modern() and capabilities.tools and capabilities.tools.list_changed:
            self._changes.follow(client, "", tools_list_changed=True)

    def _is_modern(self) -> bool:
        return self._client.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _take_notice(self, message: Any) -> None:
        match message:
            case types.ToolListChangedNotification():
                self._mark_stale()
            case types.ResourceUpdatedNotification():
                self.on_updated(message.params.uri)
            case Exception():
                self._log.note(f"what came could not be read: {message}")

    def _tell_updated(self, uri: str) -> None:
        self.on_updated(uri)

    def _mark_stale(self) -> None:
        self.stale = True
        self._ring()

    # -- the transport, and what goes wrong ----------------------------------------------------

    def _make_transport(self) -> "StdioTransport | HttpTransport":
        config, around = self._config, self._around
        if config.url is not None:
            return HttpTransport(config, around, self._redact, self._end, self._sieve)
        folder = next(iter(around.roots), Path.home())
        environment = around.environment
        return StdioTransport(config, environment, folder, self._log, self._end, self._sieve)

    def _end(self) -> None:
        self.over = True
        self.unauthorized = self._transport.unauthorized
        self._ring()

    def _told(self, what: str) -> "_Told":
        return _Told(self, what)

    def meaning_of(self, error: MCPError, what: str) -> Exception:
        """Return what an error of the SDK is to whoever asked for `what`."""
        if self._transport.unauthorized:
            self._end()
            return LoginNeeded()
        meaning = meaning_of(error, self._config.name, what)
        if isinstance(meaning, LinkLost):
            self._end()
            return meaning
        return RespondToModel(self._redact(str(meaning)))


class _Told:
    """Turns errors of the SDK into ours; used as a context."""

    def __init__(self, link: Link, what: str) -> None:
        self._link = link
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> Literal[False]:
        if isinstance(error, MCPError):
            raise self._link.meaning_of(error, self._what) from None
        if isinstance(error, ValidationError):
            raise RespondToModel(f"{self._what}: {describe(error)}.") from None
        return False


async def _take_as_it_is(name: str, result: types.CallToolResult) -> None:
    pass


def _ignore(uri: str) -> None:
    pass
