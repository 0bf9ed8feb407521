"""Runs one MCP server connection: start, restart with back-off, stop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from agent_magics.exec.servers import Deaths, LogRing
from agent_magics.mcp.client.sdk import load_link, load_oauth
from agent_magics.mcp.client.status import Standing
from agent_magics.mcp.endings import HandshakeRefused, LinkLost, LoginNeeded
from agent_magics.mcp.environment import McpEnvironment
from agent_magics.mcp.server_secrets import Redactor
from agent_magics.protocol.errors import (
    FatalError,
    RespondToModel,
    clause,
    short_message,
    typed_message,
)
from agent_magics.protocol.items import Content, Json
from agent_magics.protocol.mcp import (
    McpCallbacks,
    McpContents,
    McpPage,
    McpPrompt,
    McpResult,
    McpServerConfig,
    McpStatus,
)
from agent_magics.text.typed import as_typed

if TYPE_CHECKING:  # importing the SDK takes half a second, so it is done only with servers
    from agent_magics.mcp.client.connection import McpLink

T = TypeVar("T")

_CLOSE_LIMIT = 6.0  # seconds for a connection to end, before its task is cancelled
_NOTICE_LIMIT = 5.0  # seconds to wait until the end of a connection was noticed
_RELIST_REST = 0.2  # minimal seconds between two listings of tools
_LOG = logging.getLogger("agent_magics")


class McpServer:
    """One configured server. Its methods must run on the event loop.

    Its owner task opens and closes the connection, restarts a server that ended unexpectedly, and
    is the only one to change its state. Calls run in the tasks of their callers.

    Attributes:
        config: its configuration.
        standing: its state, with notification of changes.
        log: its output beside the protocol.
        redact: removes its secrets from a text.
    """

    def __init__(self, config: McpServerConfig, around: McpEnvironment) -> None:
        self.config = config
        self.redact = Redactor(config, around.environment)
        self.log = LogRing(self.redact)
        self.standing = Standing(config, self.redact, around.changed)
        self._sentence = self.standing.sentence
        self._around = around
        self._owner: asyncio.Task[None] | None = None
        self._link: McpLink | None = None  # while it is ready
        self._stop = asyncio.Event()  # set to end the owner task
        self._wake = asyncio.Event()  # set to make the owner task check for work
        self._start_clock: asyncio.Timeout | None = None
        self._switching = asyncio.Lock()
        self._handshake = "legacy"
        self._deaths = Deaths()

    # -- starting and ending -------------------------------------------------------------------

    def start(self) -> None:
        """Start it, unless it is started."""
        if self._owner is None:
            self._stop.clear()
            self._deaths = Deaths()
            self.standing.begin()
            self._owner = asyncio.create_task(self._live(), name=f"mcp {self.config.name}")

    async def enable(self) -> None:
        """Start a server that is disabled or was stopped; returns when its start has begun."""
        async with self._switching:
            self.standing.forget_failures()
            self.start()

    async def disable(self) -> None:
        """Stop the server, and do not start it again."""
        await self._end(lambda: self.standing.rest(McpStatus.DISABLED))

    async def restart(self) -> None:
        """Stop the server and start it again, resetting the count of its crashes."""
        self.standing.forget_failures()
        await self._end(self.start)

    async def close(self) -> None:
        """Stop it when the agent is closed."""
        disabled = McpStatus.DISABLED
        status = disabled if self.standing.status is disabled else McpStatus.STOPPED
        await self._end(lambda: self.standing.rest(status))

    async def login(self, show: Callable[[str], None], limit: float = 300) -> None:
        """Log in to a server over HTTP, store the tokens, and restart the connection.

        Args:
            show: called with the address that the person has to open; no browser is opened here.
            limit: seconds to wait for the person.

        Raises:
            FatalError: it failed; the sentence says why.
        """
        tokens = await self._tokens()
        await tokens.log_in(show, limit)
        await self.restart()

    async def logout(self) -> None:
        """Delete the tokens of the server, and restart the connection without them."""
        tokens = await self._tokens()
        await tokens.forget()
        await self.restart()

    async def _tokens(self) -> Any:
        if self.config.url is None:
            raise FatalError(self._sentence("is a program here: there is nothing to log in to."))
        self.redact.learn(self._around.environment)
        try:
            oauth = await asyncio.to_thread(load_oauth)
        except ImportError as error:
            raise FatalError(self._sentence(_lacking(error))) from None
        return oauth.Tokens(self.config, self._around.environment, self.redact)

    async def _end(self, then: Callable[[], None]) -> None:
        """End the owner task, and then do what follows.

        Both are done also where nobody waits for them any more: a person may interrupt the wait.
        """

        async def switch() -> None:
            async with self._switching:
                await self._end_owner()
                then()

        await asyncio.shield(switch())

    async def _end_owner(self) -> None:
        owner = self._owner
        if owner is None:
            return
        self._stop.set()
        self._wake.set()
        if self._start_clock is not None:
            with suppress(RuntimeError):  # it has just expired
                self._start_clock.reschedule(asyncio.get_running_loop().time())
        await asyncio.wait({owner}, timeout=_CLOSE_LIMIT)
        if not owner.done():
            owner.cancel()
            await asyncio.wait({owner}, timeout=_CLOSE_LIMIT)
        self._owner = None

    # -- the owner task ------------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            sdk = await asyncio.to_thread(load_link)
            while not self._stop.is_set() and await self._live_once(sdk):
                pass
        except ImportError as error:
            self.standing.become(McpStatus.FAILED, _lacking(error))
        except Exception as error:
            _LOG.exception("the owner of MCP server %r failed", self.config.name)
            self.standing.become(McpStatus.FAILED, f"failed here: {clause(typed_message(error))}.")
        finally:
            self._link = None
            if self._owner is asyncio.current_task():
                self._owner = None

    async def _live_once(self, sdk: ModuleType) -> bool:
        """Connect, and stay until the connection ends; return whether to connect again."""
        self.redact.learn(self._around.environment)
        link = sdk.McpLink(self.config, self._around, self.log, self.redact, self._wake.set)
        served, problem = False, None
        try:
            async with AsyncExitStack() as stack:
                await self._open(link, stack)
                self._link, served = link, True
                self._show(link)
                try:
                    await self._attend(link)
                finally:
                    self._link = None
                    if not self._stop.is_set():
                        self.standing.become(McpStatus.RESTARTING, "has just ended.")
        except HandshakeRefused:
            again = self._handshake == "legacy"
            self._handshake = "auto"
            if again:
                return True
            problem = "it speaks no version of the protocol that is known here"
        except Exception as error:
            problem = link.what_failed(error)
        link.ending = link.how_it_ended()
        if self._stop.is_set():
            return False
        if link.unauthorized:
            self.standing.want_login()
            return False
        if served:
            return await self._after_death(link, problem)
        self._fail_start(link, problem)
        return False

    async def _open(self, link: "McpLink", stack: AsyncExitStack) -> None:
        try:
            async with asyncio.timeout(self.config.startup_timeout_sec) as self._start_clock:
                await link.open(stack, self._handshake)
                await link.list_tools()
        except TimeoutError:
            raise RespondToModel(
                f"it was not ready within {self.config.startup_timeout_sec:g} s "
                "(startup_timeout_sec)"
            ) from None
        finally:
            self._start_clock = None

    async def _attend(self, link: "McpLink") -> None:
        """Process events; returns when the connection is over, or shall be."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._stop.is_set() or link.over:
                return
            if link.stale:
                link.stale = False
                await self._list_again(link)

    async def _list_again(self, link: "McpLink") -> None:
        try:
            async with asyncio.timeout(self.config.startup_timeout_sec):
                await link.list_tools()
        except (LinkLost, RespondToModel, TimeoutError) as error:
            self.log.note(f"its tools could not be listed again: {short_message(error)}")
            return
        self._show(link)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), _RELIST_REST)

    async def _after_death(self, link: "McpLink", problem: str | None) -> bool:
        """Wait with back-off and return True for a restart, unless it has ended too often."""
        how = link.ending or problem or "its connection closed"
        self.log.note(f"it ended: {how}")
        wait = self._deaths.count()
        if wait is None:
            self.standing.become(
                McpStatus.FAILED,
                f"ended {self._deaths.number} times within a minute, the last time "
                f"({how}){self.log.last_words()}. {self._way_back()}",
            )
            return False
        self.standing.become(
            McpStatus.RESTARTING,
            f"ended ({how}); it is being restarted.",
            restarts=self.standing.state.restarts + 1,
        )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), wait)
        return True

    def _fail_start(self, link: "McpLink", problem: str | None) -> None:
        before = "ended and " if self.standing.status is McpStatus.RESTARTING else ""
        why = problem or link.ending or "its connection closed"
        words = self.log.last_words()
        failed = f"{before}could not be started: {why}{words}. {self._way_back()}"
        self.standing.become(McpStatus.FAILED, failed)

    def _way_back(self) -> str:
        """Return what starts it again, as a sentence."""
        restart = f"%agent mcp restart {as_typed(self.config.name)}"
        if self.config.url is not None:
            return f"It is tried again later, when it is needed; at once by {restart}."
        return f"It is not started again by itself: {restart}."

    def _show(self, link: "McpLink") -> None:
        self.standing.become(
            McpStatus.READY,
            instructions=link.instructions,
            version=link.version,
            tools=tuple(link.tools.values()),
            left_out=tuple(link.left_out.items()),
            has_resources=link.has_resources,
            has_prompts=link.has_prompts,
        )

    # -- for callers ---------------------------------------------------------------------------

    async def call_tool(
        self, tool: str, arguments: Mapping[str, Json], callbacks: McpCallbacks
    ) -> McpResult:
        """Call a tool; waits while the server is starting.

        Args:
            tool: the tool's name at the server.
            arguments: a JSON object.
            callbacks: receive progress, log messages and questions of the server meanwhile.

        Raises:
            RespondToModel: there is no such tool, the server is not available, it refused the call,
                it ended during the call, or timed out.
        """
        async with self._connected() as link:
            if tool not in link.tools:
                raise RespondToModel(self._no_tool(link, tool))
            return await link.call_tool(tool, arguments, callbacks)

    async def ask(self, work: "Callable[[McpLink], Awaitable[T]]") -> T:
        """Run a request other than a tool call on the connection.

        Raises:
            RespondToModel: the server does not offer it, is not available, or timed out.
        """
        limit = self.config.tool_timeout_sec
        try:
            async with self._connected() as link, asyncio.timeout(limit):
                return await work(link)
        except TimeoutError:
            raise RespondToModel(self._sentence(f"did not answer within {limit:g} s.")) from None

    async def list_resources(self, cursor: str = "") -> McpPage:
        """Return a page of the resources; raises as `ask`."""
        return await self.ask(lambda link: link.list_resources(cursor))

    async def list_resource_templates(self, cursor: str = "") -> McpPage:
        """Return a page of the resource templates; raises as `ask`."""
        return await self.ask(lambda link: link.list_resource_templates(cursor))

    async def read_resource(self, uri: str) -> tuple[McpContents, ...]:
        """Read a resource, which may have several parts; raises as `ask`."""
        return await self.ask(lambda link: link.read_resource(uri))

    async def list_prompts(self) -> tuple[McpPrompt, ...]:
        """Return the prompts that the server offers; raises as `ask`."""
        return await self.ask(lambda link: link.list_prompts())

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str]
    ) -> tuple[tuple[str, Content], ...]:
        """Return a prompt's messages as (role, content); raises as `ask`."""
        return await self.ask(lambda link: link.get_prompt(name, arguments))

    @asynccontextmanager
    async def _connected(self) -> "AsyncIterator[McpLink]":
        """Wait for the connection, and say what happened where it ends, or wants a login."""
        if self.standing.may_be_back:
            self.start()
        if self._link is None:
            await self.standing.ready()
        link = self._link
        if link is None:
            raise RespondToModel(self._sentence("has just ended; try again."))
        try:
            yield link
        except LinkLost as lost:
            raise RespondToModel(await self._tell_loss(link, lost)) from None
        except LoginNeeded:
            raise RespondToModel(self.standing.login_sentence()) from None

    async def _tell_loss(self, link: "McpLink", lost: LinkLost) -> str:
        """Return the sentence about a call whose server ended, and about the server's state."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTICE_LIMIT):
                while self._link is link or link.ending is None:
                    await self.standing.change()
        how = f" ({link.ending})" if link.ending else ""
        did = "whether it did its work is unknown" if lost.taken else "it has not taken it"
        try:
            await self.standing.ready()
            now = "it has been restarted; look at what was done before you call again"
        except RespondToModel as error:
            now = clause(error)
        return self.redact(self._sentence(f"ended{how} during the call; {did}; {now}."))

    def _no_tool(self, link: "McpLink", tool: str) -> str:
        if tool in link.left_out:
            return self._sentence(f"has a tool {tool!r} that cannot be used: {link.left_out[tool]}")
        return self._sentence(f"has no tool {tool!r}; it has: {', '.join(link.tools) or 'none'}.")


def _lacking(error: ImportError) -> str:
    why = short_message(error)
    return f'needs a package that is not there ({why}): pip install "agent-magics[mcp]".'
