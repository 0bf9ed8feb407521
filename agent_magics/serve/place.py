"""Chooses the event loop and thread on which MCP clients' calls run.

In a notebook that is the kernel's main thread: a call waits there while a cell of the person's
blocks it. A program without a loop gets a thread of our own for it.
"""

import asyncio
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import replace
from typing import Any

from agent_magics.composition.agent import ComposedAgent
from agent_magics.dispatch.call import CallLock
from agent_magics.engine.foreground.host import Host
from agent_magics.engine.front_end import ServeHost
from agent_magics.engine.results.run import output_of
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.engine.turns.loop import cancel_all
from agent_magics.protocol.events import Event
from agent_magics.protocol.ops import CallTool
from agent_magics.protocol.tools import ToolOutput

# Seconds that calls get to clean up; a function of the person's cannot be stopped.
_END_LIMIT = 2.0


class ProgramServeHost:
    """Serves calls of MCP clients in a plain program: the agent's settings and `on_question`."""

    def __init__(self, agent: ComposedAgent) -> None:
        self._agent = agent

    def turn_config(self) -> TurnConfig:
        """Return the agent's current configuration."""
        return self._agent.turn_config()

    def host(self, client: str) -> Host | None:
        """Return None: the agent's own host answers questions."""
        return None

    def begin(self, refresh: Callable[[], None]) -> None:
        """Do nothing: changes of the tools are reported by the agent's registrations."""

    def end(self) -> None:
        """Do nothing: there is nothing to release."""


class CallPlace:
    """Runs calls on one event loop; calls that exclude each other run one after the other.

    Args:
        agent: the agent whose tools are called.
        serve_host: the front end's part; None in a plain program.
    """

    def __init__(self, agent: ComposedAgent, serve_host: ServeHost | None = None) -> None:
        self.agent = agent
        self.serve_host = serve_host or ProgramServeHost(agent)
        self._context: Context = copy_context()  # in a notebook it holds the current cell
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
        """Start `coroutine` on this loop; from any thread.

        Raises:
            RuntimeError: the loop is closed.
        """
        try:
            return self._context.copy().run(asyncio.run_coroutine_threadsafe, coroutine, self._loop)
        except RuntimeError:
            coroutine.close()
            raise

    def soon(self, function: Callable[[], None]) -> None:
        """Schedule `function` on this loop; from any thread."""
        self._loop.call_soon_threadsafe(function, context=self._context.copy())

    async def call(
        self,
        client: str,
        name: str,
        arguments: dict[str, Any],
        host: Host | None,
        show: Callable[[Event], None],
    ) -> ToolOutput:
        """Run one call of `client` to its end; approvals given in it hold for this call alone.

        Raises:
            FatalError: only the person can help.
            asyncio.CancelledError: the client cancelled; the call has been stopped.
        """
        turn_config = replace(self.serve_host.turn_config(), asker=client)
        handler = turn_config.registry.handler(name)
        turn = self._lock.take_place(shared=handler is not None and handler.supports_parallel)
        try:
            await turn.wait()
            turn_id = f"served-{uuid.uuid4().hex[:12]}"
            op = CallTool(turn_id=turn_id, name=name, arguments=arguments)
            return output_of(await self.agent.foreground(show, host=host).wait(op, turn_config))
        except KeyboardInterrupt:  # it was for this call alone, and must not end the loop
            return ToolOutput("The person interrupted it.", success=False)
        finally:
            turn.leave()

    def close(self) -> None:
        """Stop the thread, where one was started for this place."""
        if self._thread is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # closed at this moment
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_END_LIMIT)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(cancel_all(asyncio.all_tasks(loop)))
    finally:
        loop.close()
