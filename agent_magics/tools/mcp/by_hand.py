"""Answers questions of an MCP server during a call that a person makes by hand."""

import asyncio
import contextvars
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from agent_magics.dispatch.consent.flood import QuestionLimit
from agent_magics.protocol.events import ElicitationRequested
from agent_magics.protocol.mcp import Elicitation, ElicitationAnswer, McpCallbacks, Sampling
from agent_magics.protocol.ops import Answer, denied
from agent_magics.tools.mcp.callbacks import answer_of

_LOG = logging.getLogger("agent_magics")

# Answers a question on the thread it is called on, which it may keep waiting.
Ask = Callable[[ElicitationRequested], Answer]
# Starts the call with its callbacks, on the engine's loop; from any other thread.
Start = Callable[[McpCallbacks], "Future[Any]"]


def decline(question: ElicitationRequested) -> Answer:
    """Decline a server's question because there is nobody to ask."""
    return denied(question.question_id)


def wait_for_call(start: Start, ask: Ask) -> object:
    """Make a call and return its result, answering the server's questions on this thread."""
    waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
    pending = start(_DirectCallbacks(ask, waiting.put))
    pending.add_done_callback(lambda _: waiting.put(None))
    try:
        while (answer := waiting.get()) is not None:
            answer()
        return pending.result()
    except KeyboardInterrupt:
        pending.cancel()
        raise


async def await_call(start: Start, ask: Ask) -> object:
    """Make a call and return its result, answering the server's questions on this loop."""
    loop = asyncio.get_running_loop()
    # The cell's own context: what is shown and typed in belongs to it.
    hand_over = partial(loop.call_soon_threadsafe, context=contextvars.copy_context())
    return await asyncio.wrap_future(start(_DirectCallbacks(ask, hand_over)))


class _DirectCallbacks:
    """Handles a server's requests during one call by hand: asks, shows no progress, no sampling."""

    def __init__(self, ask: Ask, hand_over: Callable[[Callable[[], None]], Any]) -> None:
        self._ask = ask
        self._hand_over = hand_over
        self._limit: QuestionLimit | None = None

    def progress(self, done: float, total: float | None, message: str) -> None:
        """Ignore progress."""

    def log(self, level: str, text: str) -> None:
        """Ignore log messages."""

    async def elicit(self, question: Elicitation) -> ElicitationAnswer:
        """Ask on the thread of the caller."""
        if self._limit is None:
            self._limit = QuestionLimit(_LOG.warning, question.server)
        return answer_of(question, await self._limit.put(partial(self._put, question)))

    async def _put(self, question: Elicitation) -> Answer:
        event = ElicitationRequested(
            question_id=uuid.uuid4().hex,
            call_id="",
            server=question.server,
            message=question.message,
            schema=question.schema,
            url=question.url,
        )
        reply: Future[Answer] = Future()
        self._hand_over(partial(_answer, self._ask, event, reply))
        return await asyncio.wrap_future(reply)

    async def sample(self, request: Sampling) -> str | None:
        """Refuse: None."""
        return None


def _answer(ask: Ask, question: ElicitationRequested, reply: "Future[Answer]") -> None:
    if not reply.set_running_or_notify_cancel():
        return  # the call is over
    try:
        reply.set_result(ask(question))
    except Exception as error:
        reply.set_exception(error)
