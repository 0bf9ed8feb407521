"""Runs one call of an MCP client: progress, questions, result."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

from mcp_types import ElicitResult

from agent_magics.engine.foreground.host import Host
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.events import ApprovalRequested, Event, ToolCallUpdated
from agent_magics.protocol.tools import ToolOutput
from agent_magics.serve.asking import ClientHost
from agent_magics.serve.place import CallPlace

_WAITS = "waits for the person's approval"

Progress = Callable[[float, str | None], Awaitable[None]]


class OpenQuestion:
    """A question that waits for the client's answer; `answer` may be called from any thread."""

    def __init__(self, question: ApprovalRequested, future: "asyncio.Future[Any]") -> None:
        self.question = question
        self._future = future
        self._loop = asyncio.get_running_loop()

    def answer(self, result: ElicitResult | None) -> None:
        """Set the client's answer; None where the client cannot be asked."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: ElicitResult | None) -> None:
        if not self._future.done():
            self._future.set_result(result)


class OutsideCall:
    """One call of an MCP client; lives on the engine's loop, and runs at `place`.

    Args:
        place: the loop and thread on which the call runs.
        client: the client's name, for people.
        name: the tool.
        arguments: as the client sent them; the tool's handler checks them.
        ask_client: whether approval questions go to the client rather than to `place`'s host.
    """

    def __init__(
        self,
        place: CallPlace,
        client: str,
        name: str,
        arguments: dict[str, Any],
        *,
        ask_client: bool,
    ) -> None:
        self.name, self.arguments = name, arguments
        self._engine_loop = asyncio.get_running_loop()
        self._updates: asyncio.Queue[ToolCallUpdated | OpenQuestion | None] = asyncio.Queue()
        self._reached = 0.0
        host: Host | None = ClientHost(self._ask) if ask_client else place.serve_host.host(client)
        self._work: Future[ToolOutput] = place.run(
            place.call(client, name, arguments, host, self._see)
        )
        self._work.add_done_callback(lambda _: self._put_update(None))

    # -- on the place's thread --------------------------------------------------------------------

    def _see(self, event: Event) -> None:
        if isinstance(event, ToolCallUpdated):
            self._put_update(event)
        elif isinstance(event, ApprovalRequested):
            self._put_update(ToolCallUpdated(call_id=event.call_id, name=event.tool, title=_WAITS))

    def _ask(self, question: ApprovalRequested, future: "asyncio.Future[Any]") -> None:
        self._put_update(OpenQuestion(question, future))

    def _put_update(self, update: "ToolCallUpdated | OpenQuestion | None") -> None:
        self._engine_loop.call_soon_threadsafe(self._updates.put_nowait, update)

    # -- on the engine's loop ---------------------------------------------------------------------

    async def next_question(self, progress: Progress) -> OpenQuestion | None:
        """Wait for the call's next question, sending progress; None when the call has ended."""
        while True:
            update = await self._updates.get()
            if not isinstance(update, ToolCallUpdated):
                return update
            await progress(self._share(update.progress), update.title)

    def _share(self, reported: float | None) -> float:
        """Return the progress, always above the previous value, as MCP requires."""
        above = math.nextafter(self._reached, math.inf) if self._reached else 1e-6
        self._reached = max(reported or 0.0, above)
        return self._reached

    def output(self) -> ToolOutput:
        """Return the output of the ended call; failures and cancellations are outputs, too."""
        try:
            return self._work.result(timeout=0)
        except FatalError as error:
            return ToolOutput(short_message(error), success=False)
        except CancelledError:
            return ToolOutput("The call was stopped before it ended.", success=False)

    def cancel(self) -> None:
        """Cancel the call, because its client has disconnected or cancelled it."""
        self._work.cancel()
