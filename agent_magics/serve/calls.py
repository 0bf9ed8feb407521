"""One call of a client on its way: progress goes out, questions may, and the result comes back."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

from mcp_types import ElicitResult

from agent_magics.engine.host import Host
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import ApprovalRequested, Event, Question, ToolCallUpdated
from agent_magics.protocol.tools import ToolOutput
from agent_magics.serve.asking import ClientHost
from agent_magics.serve.place import Place

_WAITS = "waits for the person's approval"

Progress = Callable[[float, str | None], Awaitable[None]]


class OpenQuestion:
    """A question that waits for the client; `answer` may be called from any thread."""

    def __init__(self, question: Question, future: "asyncio.Future[Any]") -> None:
        self.question = question
        self._future = future
        self._loop = asyncio.get_running_loop()

    def answer(self, result: ElicitResult | None) -> None:
        """Bring the client's answer home; None where it cannot be asked."""
        with suppress(RuntimeError):  # the place has ended
            self._loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: ElicitResult | None) -> None:
        if not self._future.done():
            self._future.set_result(result)


class OutsideCall:
    """One call; lives on the engine's loop, and is made at `place`.

    Args:
        place: where it is made.
        client: who calls, for people.
        name: the tool.
        arguments: as the client sent them; the tool's handler checks them.
        ask_client: questions go to the client, and not to the place's own way.
    """

    def __init__(
        self, place: Place, client: str, name: str, arguments: dict[str, Any], *, ask_client: bool
    ) -> None:
        self.name, self.arguments = name, arguments
        self._engine_loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[ToolCallUpdated | OpenQuestion | None] = asyncio.Queue()
        self._reached = 0.0
        host: Host | None = ClientHost(self._ask) if ask_client else place.desk.host(client)
        self._work: Future[ToolOutput] = place.run(place.call(name, arguments, host, self._see))
        self._work.add_done_callback(lambda _: self._tell(None))

    # -- on the place's thread --------------------------------------------------------------------

    def _see(self, event: Event) -> None:
        if isinstance(event, ToolCallUpdated):
            self._tell(event)
        elif isinstance(event, ApprovalRequested):
            self._tell(ToolCallUpdated(call_id=event.call_id, name=event.tool, title=_WAITS))

    def _ask(self, question: Question, future: "asyncio.Future[Any]") -> None:
        self._tell(OpenQuestion(question, future))

    def _tell(self, news: "ToolCallUpdated | OpenQuestion | None") -> None:
        self._engine_loop.call_soon_threadsafe(self._news.put_nowait, news)

    # -- on the engine's loop ---------------------------------------------------------------------

    async def next_question(self, progress: Progress) -> OpenQuestion | None:
        """Wait for a question to the client, sending progress meanwhile; None at the call's end."""
        while True:
            news = await self._news.get()
            if not isinstance(news, ToolCallUpdated):
                return news
            await progress(self._share(news.progress), news.title)

    def _share(self, said: float | None) -> float:
        """Return how far the call is: the protocol wants every number above the one before."""
        above = math.nextafter(self._reached, math.inf) if self._reached else 1e-6
        self._reached = max(said or 0.0, above)
        return self._reached

    def output(self) -> ToolOutput:
        """Return what the call gave back, once it has ended."""
        try:
            return self._work.result(timeout=0)
        except FatalError as error:
            return ToolOutput(str(error), success=False)
        except CancelledError:
            return ToolOutput("The call was stopped before it ended.", success=False)

    def cancel(self) -> None:
        """Stop the call: its client has gone, or gave up."""
        self._work.cancel()
