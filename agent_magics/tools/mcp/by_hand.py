"""A tool called by hand: what its server asks meanwhile is put to whoever waits for the call."""

import asyncio
import contextvars
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from agent_magics.protocol.events import ElicitationRequested
from agent_magics.protocol.mcp import Elicitation, ElicitationAnswer, McpDesk, Sampling
from agent_magics.protocol.ops import Answer
from agent_magics.tools.mcp_desk import answer_of

# Answers a question on the thread it is called on, which it may keep waiting.
Ask = Callable[[ElicitationRequested], Answer]
# Starts the call with a desk, on the engine's loop; from any other thread.
Start = Callable[[McpDesk], "Future[Any]"]


def decline(question: ElicitationRequested) -> Answer:
    """Answer where there is nobody to ask."""
    return Answer(question_id=question.question_id, decision="deny", by="policy")


def wait_for_call(start: Start, ask: Ask) -> Any:
    """Make a call and return its result; questions are answered on this thread meanwhile."""
    waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    pending = start(_Desk(ask, waiting.put))
    pending.add_done_callback(lambda _: waiting.put(None))
    try:
        while (answer := waiting.get()) is not None:
            answer()
        return pending.result()
    except KeyboardInterrupt:
        pending.cancel()
        raise


async def await_call(start: Start, ask: Ask) -> Any:
    """Make a call and return its result; questions are answered on this loop meanwhile."""
    loop = asyncio.get_running_loop()
    # The cell's own context: what is shown and typed in belongs to it.
    hand_over = partial(loop.call_soon_threadsafe, context=contextvars.copy_context())
    return await asyncio.wrap_future(start(_Desk(ask, hand_over)))


class _Desk:
    """The desk of one call; news are not shown, and our model answers no server."""

    def __init__(self, ask: Ask, hand_over: Callable[[Callable[[], None]], Any]) -> None:
        self._ask = ask
        self._hand_over = hand_over

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Show nothing."""

    def log(self, level: str, text: str) -> None:
        """Keep nothing."""

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Have it answered on the thread of whoever called."""
        asked = ElicitationRequested(
            question_id=uuid.uuid4().hex,
            call_id="",
            server=question.server,
            message=question.message,
            schema=question.schema,
            url=question.url,
        )
        reply: Future[Answer] = Future()
        self._hand_over(partial(_answer, self._ask, asked, reply))
        return answer_of(question, await asyncio.wrap_future(reply))

    async def sample(self, request: Sampling) -> str | None:
        """Refuse."""
        return None


def _answer(ask: Ask, question: ElicitationRequested, reply: "Future[Answer]") -> None:
    if not reply.set_running_or_notify_cancel():
        return  # the call is over
    try:
        reply.set_result(ask(question))
    except Exception as error:
        reply.set_exception(error)
