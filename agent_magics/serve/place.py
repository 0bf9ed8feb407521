"""Where calls from outside are made: the loop whose thread runs the person's own functions.

In a notebook that is the kernel's main thread: a call waits there while a cell of the person's
blocks it. A program without a loop gets a thread of our own for it.
"""

import asyncio
import threading
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Protocol

from agent_magics.dispatch.parallel import CallLock
from agent_magics.engine.foreground import Foreground
from agent_magics.engine.host import Host
from agent_magics.engine.result import output_of
from agent_magics.engine.session import Session
from agent_magics.engine.setup import RunSetup
from agent_magics.protocol.events import Event
from agent_magics.protocol.ops import CallTool
from agent_magics.protocol.tools import ToolOutput

# Seconds that calls get to clean up; a function of the person's cannot be stopped.
_END_LIMIT = 2.0


class Agent(Protocol):
    """What of `agent_magics.app.Agent`, which imports this package, is needed here."""

    session: Session

    def setup(self) -> RunSetup:
        """See there."""
        ...

    def foreground(
        self, show: Any = None, tick: Any = None, host: Host | None = None, after: Any = None
    ) -> Foreground:
        """See there."""
        ...


class Desk(Protocol):
    """What the surroundings lend for calls that come from outside."""

    def setup(self) -> RunSetup:
        """Return what the calls run with; on the place's thread."""
        ...

    def host(self, client: str) -> Host | None:
        """Return who answers questions about calls of `client`; None is the agent's own way."""
        ...

    def begin(self, refresh: Callable[[], None]) -> None:
        """Call `refresh`, on the place's thread, whenever other tools may be there than before."""
        ...

    def end(self) -> None:
        """Call it no more, and take away what is shown of calls."""
        ...


class ProgramDesk:
    """A program without a notebook: the agent's own settings, and `on_question`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def setup(self) -> RunSetup:
        """Return what the agent runs with."""
        return self._agent.setup()

    def host(self, client: str) -> Host | None:
        """Leave it to the agent."""
        return None

    def begin(self, refresh: Callable[[], None]) -> None:
        """Do nothing: all that can change is on the agent's shelf."""

    def end(self) -> None:
        """Do nothing."""


class Place:
    """Makes calls on one loop, those that exclude each other one after the other.

    Args:
        agent: whose tools are called.
        desk: what the surroundings lend.
    """

    def __init__(self, agent: Agent, desk: Desk | None = None) -> None:
        self.agent = agent
        self.desk = desk or ProgramDesk(agent)
        self._context: Context = copy_context()  # in a notebook it knows the cell
        self._lock = CallLock()
        self._thread: threading.Thread | None = None
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_run, args=(self._loop,), name="agent-serve", daemon=True
            )
            self._thread.start()

    def run(self, coroutine: Any) -> "Future[Any]":
        """Start `coroutine` here; from any thread.

        Raises:
            RuntimeError: the loop has ended.
        """
        try:
            return self._context.copy().run(asyncio.run_coroutine_threadsafe, coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def soon(self, function: Callable[[], None]) -> None:
        """Run `function` here soon; from any thread."""
        self._loop.call_soon_threadsafe(function, context=self._context.copy())

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        host: Host | None,
        show: Callable[[Event], None],
    ) -> ToolOutput:
        """Make one call and serve it until it ends.

        Raises:
            FatalError: only the person can help.
            asyncio.CancelledError: the client gave up; the call has been stopped.
        """
        setup = self.desk.setup()
        handler = setup.registry.handler(name)
        turn = self._lock.take_place(shared=handler is not None and handler.supports_parallel)
        try:
            await turn.wait()
            turn_id = f"served-{uuid.uuid4().hex[:12]}"
            op = CallTool(turn_id=turn_id, name=name, arguments=arguments)
            return output_of(await self.agent.foreground(show, host=host).wait(op, setup))
        except KeyboardInterrupt:  # it was for this call alone, and must not end the loop
            return ToolOutput("The person interrupted it.", success=False)
        finally:
            turn.leave()

    def close(self) -> None:
        """End the thread that was made for it."""
        if self._thread is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # closed at this moment
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_LIMIT)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel(asyncio.all_tasks(loop)))
    finally:
        loop.close()


async def _cancel(tasks: Collection["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
