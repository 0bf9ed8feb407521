"""Manages one live connection to a server through the SDK's client; imported late, with the SDK."""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agent_magics._version import __version__
from agent_magics.exec.servers import LogRing
from agent_magics.mcp.client.calls import Calls, check_sent
from agent_magics.mcp.client.faults import NO_RESULT, core_of, describe, meaning_of, wants_login
from agent_magics.mcp.client.message_filter import MessageFilter
from agent_magics.mcp.client.results import contents_of, message_of, prompt_of, resource_of
from agent_magics.mcp.client.schemas import MOST_TOOLS
from agent_magics.mcp.client.tool_choice import chosen_tools, is_wanted
from agent_magics.mcp.endings import HandshakeRefused, LinkLost, LoginNeeded
from agent_magics.mcp.environment import McpEnvironment
from agent_magics.mcp.server_secrets import Redactor
from agent_magics.mcp.transports.http import HttpTransport
from agent_magics.mcp.transports.stdio import StdioTransport
from agent_magics.protocol.errors import RespondToModel, short_message
from agent_magics.protocol.items import Content, Json
from agent_magics.protocol.mcp import (
    McpCallbacks,
    McpContents,
    McpPage,
    McpPrompt,
    McpResult,
    McpServerConfig,
    McpTool,
)

_MOST_PAGES = 100
_NOT_KNOWN = (types.METHOD_NOT_FOUND, types.UNSUPPORTED_PROTOCOL_VERSION)
# Otherwise the library's warnings would appear in the person's cells.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class McpLink:
    """A connection: opened once by its owner task, used by any caller.

    Attributes:
        tools: callable tools, by name.
        left_out: name -> why the tool cannot be called.
        instructions, version, has_resources, has_prompts: the server's description of itself.
        over: whether it has ended, or must be ended.
        stale: whether the server has announced changed tools.
        unauthorized: whether the server requires a login.
        ending: how it ended, in a few words; None while it is open.
    """

    def __init__(
        self,
        config: McpServerConfig,
        around: McpEnvironment,
        log: LogRing,
        redact: Redactor,
        ring: Callable[[], None],
    ) -> None:
        self._config = config
        self._around = around
        self._log = log
        self._redact = redact
        self._ring = ring
        self._filter = MessageFilter(partial(is_wanted, config))
        self._transport = self._make_transport()
        self._opened: Client | None = None
        self._calls = Calls(config, around.roots, log)
        self.tools: dict[str, McpTool] = {}
        self.left_out: dict[str, str] = {}
        self.instructions = self.version = ""
        self.has_resources = self.has_prompts = False
        self.over = self.stale = self.unauthorized = False
        self.ending: str | None = None

    # -- for the owner -------------------------------------------------------------------------

    async def open(self, stack: AsyncExitStack, handshake: str) -> None:
        """Connect; leaving `stack` closes the connection.

        Args:
            stack: the owner's; it must be left in the same task.
            handshake: "legacy" for servers before protocol 2026, "auto" if one refused that.

        Raises:
            RespondToModel: it cannot be started.
            HandshakeRefused: another handshake may be tried.
            Exception: of any kind; see `what_failed`.
        """
        self._opened = client = Client(
            self._transport,
            mode=handshake,
            cache=None,
            client_info=types.Implementation(name="agent-magics", version=__version__),
            log_level="info",
            list_roots_callback=self._calls.list_roots,
            logging_callback=self._calls.take_log,
            elicitation_callback=self._calls.elicit,
            sampling_callback=self._calls.sample,
            message_handler=self._on_message,
        )
        try:
            await stack.enter_async_context(client)
        except (MCPError, ExceptionGroup) as error:
            core = core_of(error)
            if isinstance(core, MCPError) and core.code in _NOT_KNOWN:
                raise HandshakeRefused from None
            raise
        self._calls.begin(client)
        self._describe()
        tools = client.server_capabilities.tools
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools and tools.list_changed:
            following = asyncio.create_task(self._follow_changes())
            stack.push_async_callback(_end_task, following)

    async def list_tools(self) -> None:
        """Request all tools, page by page; they replace the known ones.

        Raises:
            RespondToModel: the server refuses.
            LinkLost: the connection ended.
        """
        if self._client.server_capabilities.tools is None:
            return
        with self._filter.listing(self._client.protocol_version) as malformed:
            found = await self._all(self._client.list_tools, "tools", MOST_TOOLS)
        self.tools, self.left_out = chosen_tools(self._config, found, malformed, self._log)

    def how_it_ended(self) -> str:
        """Return how it ended, in a few words; "" where unknown."""
        return self._transport.ending

    def what_failed(self, error: BaseException) -> str:
        """Record an error that ended the connection; describe it in a few words."""
        self.unauthorized = self.unauthorized or wants_login(error)
        status, words = self._transport.status, describe(error)
        return words if words.startswith(status) else ": ".join(filter(None, (status, words)))

    # -- for callers ---------------------------------------------------------------------------

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Json], callbacks: McpCallbacks
    ) -> McpResult:
        """Call a tool.

        Raises:
            RespondToModel: the server refused it, or it timed out.
            LinkLost: the connection ended meanwhile.
        """
        try:
            return await self._calls.call(tool, arguments, callbacks)
        except MCPError as error:
            raise self._meaning_of(error, f"the tool {tool!r}") from None

    async def list_resources(self, cursor: str) -> McpPage:
        """Return a page of resources."""
        return await self._page(self._client.list_resources, "resources", cursor)

    async def list_resource_templates(self, cursor: str) -> McpPage:
        """Return a page of resource templates."""
        ask = self._client.list_resource_templates
        return await self._page(ask, "resource_templates", cursor)

    async def read_resource(self, uri: str) -> tuple[McpContents, ...]:
        """Read a resource."""
        self._need(self.has_resources, "resources")
        with self._translating_errors(f"the resource {uri}", uri):
            answer = await self._client.read_resource(uri)
        return tuple(contents_of(part) for part in answer.contents)

    async def list_prompts(self) -> tuple[McpPrompt, ...]:
        """Return all prompts."""
        self._need(self.has_prompts, "prompts")
        found = await self._all(self._client.list_prompts, "prompts")
        return tuple(prompt_of(self._config.name, each) for each in found)

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str]
    ) -> tuple[tuple[str, Content], ...]:
        """Return a prompt's messages."""
        self._need(self.has_prompts, "prompts")
        with self._translating_errors(f"the prompt {name!r}", (name, dict(arguments))):
            answer = await self._client.get_prompt(name, dict(arguments))
        return tuple(message_of(message) for message in answer.messages)

    async def _all(self, ask: Callable[..., Any], what: str, most: int = sys.maxsize) -> list[Any]:
        """Return what all pages of a list have; no further page is requested past `most` parts."""
        found: list[Any] = []
        cursor: str | None = None
        cursors: set[str] = set()
        for _ in range(_MOST_PAGES):
            with self._translating_errors(f"{what}/list"):
                page = await ask(cursor=cursor)
            found += getattr(page, what)
            cursor = page.next_cursor
            if not cursor or len(found) > most:
                return found
            if cursor in cursors:
                self._log.note(f"its list of {what} comes back to where it was; cut there")
                return found
            cursors.add(cursor)
        self._log.note(f"its list of {what} has more than {_MOST_PAGES} pages; cut there")
        return found

    async def _page(self, ask: Callable[..., Any], what: str, cursor: str) -> McpPage:
        self._need(self.has_resources, "resources")
        with self._translating_errors(f"{what}/list", cursor):
            answer = await ask(cursor=cursor or None)
        items = tuple(resource_of(self._config.name, each) for each in getattr(answer, what))
        return McpPage(items, answer.next_cursor or "")

    def _need(self, has: bool, what: str) -> None:
        if not has:
            raise RespondToModel(f"The MCP server {self._config.name!r} has no {what}.")

    # -- the server's description and notifications --------------------------------------------

    def _describe(self) -> None:
        client = self._client
        capabilities = client.server_capabilities
        self.instructions = client.instructions or ""
        self.version = client.server_info.version if client.server_info else ""
        self.has_resources = capabilities.resources is not None
        self.has_prompts = capabilities.prompts is not None
        # Results are not validated against their schema, which is the server's too: it would run
        # untrusted regular expressions on the event loop, and lose a result that does not match.
        session: Any = client.session
        session.validate_tool_result = _skip_validation

    @property
    def _client(self) -> Client:
        assert self._opened is not None  # a link is used only after `open`
        return self._opened

    async def _follow_changes(self) -> None:
        """Hear of changed tools on a stream of its own, as servers tell since protocol 2026."""
        try:
            async with self._client.listen(tools_list_changed=True) as events:
                async for _ in events:
                    self._mark_stale()
        except Exception as error:
            self._log.note(f"changes are not told any more: {short_message(error)}")

    async def _on_message(self, message: object) -> None:
        match message:
            case types.ToolListChangedNotification():
                self._mark_stale()
            case Exception():
                self._log.note(f"what came could not be read: {message}")

    def _mark_stale(self) -> None:
        self.stale = True
        self._ring()

    # -- transport and errors ------------------------------------------------------------------

    def _make_transport(self) -> "StdioTransport | HttpTransport":
        config, around = self._config, self._around
        if config.url is not None:
            return HttpTransport(config, around, self._redact, self._log, self._end, self._filter)
        folder = next(iter(around.roots), Path.home())
        environment = around.environment
        return StdioTransport(config, environment, folder, self._log, self._end, self._filter)

    def _end(self) -> None:
        self.over = True
        self.unauthorized = self.unauthorized or self._transport.unauthorized
        self._ring()

    @contextmanager
    def _translating_errors(self, what: str, sent: object = None) -> Iterator[None]:
        """Check what is sent, and translate errors of the SDK for who requested `what`."""
        check_sent(what, sent)
        try:
            yield
        except MCPError as error:
            raise self._meaning_of(error, what) from None
        except NO_RESULT as error:
            raise RespondToModel(f"{what}: {describe(error)}.") from None

    def _meaning_of(self, error: MCPError, what: str) -> Exception:
        if wants_login(error) or self._transport.unauthorized:
            self.unauthorized = True
            self._end()
            return LoginNeeded()
        meaning = meaning_of(error, self._config.name, what)
        if isinstance(meaning, LinkLost):
            self._end()
            return meaning
        return RespondToModel(self._redact(str(meaning)))


async def _end_task(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _skip_validation(name: str, result: types.CallToolResult) -> None:
    pass
