"""Holds open questions, and work for the waiting thread, by id until they are resolved."""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from agent_magics.dispatch.context import Emit
from agent_magics.protocol.errors import typed_message
from agent_magics.protocol.events import (
    DynamicToolCallRequest,
    MainThreadWork,
    Question,
    QuestionResolved,
    Warned,
)
from agent_magics.protocol.ops import Answer, DynamicToolResponse

# How often, and after how many seconds each, an exception is raised in code to be stopped.
MOST_WAKES, WAKE_INTERVAL = 10, 0.5
STUCK = (
    "{name} was told to stop and goes on: it is in code that Python cannot interrupt, or catches "
    "every error. The kernel is busy until it returns, or is restarted."
)


class PendingQuestions:
    """The open questions of one session; used on the engine's loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.Future[Answer], Emit]] = {}
        self._numbers = itertools.count(1)

    def next_id(self) -> str:
        """Return a new question id, which only its widget can know."""
        return f"q{next(self._numbers)}-{secrets.token_hex(8)}"

    async def ask(self, emit: Emit, kind: type[Question], **fields: Any) -> Answer:
        """Emit a question and wait for its answer."""
        question_id = self.next_id()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[question_id] = (future, emit)
        emit(kind, question_id=question_id, **fields)
        try:
            return await future
        finally:
            if self._waiting.pop(question_id, None) is not None:
                emit(QuestionResolved, question_id=question_id, decision="closed", by="engine")

    def resolve(self, answer: Answer) -> None:
        """Pass an answer to the question that waits for it; a late or second one is dropped."""
        waiting = self._waiting.pop(answer.question_id, None)
        if waiting is None:
            return
        future, emit = waiting
        emit(
            QuestionResolved,
            question_id=answer.question_id,
            decision=answer.decision,
            by=answer.by,
            feedback=answer.feedback,
        )
        if not future.done():
            future.set_result(answer)


class WorkQueue:
    """Work for the thread that waits for the run: callables, which no event can carry."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: dict[str, Work] = {}
        self._numbers = itertools.count(1)

    async def run(
        self, emit: Emit, kind: str, call_id: str, name: str, run: Callable[[], Any]
    ) -> Any:
        """Run a function on the thread that waits, announced by an event; return its result."""
        work = Work(f"w{next(self._numbers)}", kind, run, self._loop)
        self._work[work.id] = work
        try:
            emit(MainThreadWork, question_id=work.id, call_id=call_id, work=kind, name=name)
            return await work.result
        except asyncio.CancelledError:
            work.end(partial(emit, Warned, message=STUCK.format(name=name)))
            raise
        finally:
            self.take(work.id)

    def take(self, work_id: str) -> "Work | None":
        """Remove and return the work; None when it was cancelled meanwhile."""
        return self._work.pop(work_id, None)


class Work:
    """One piece of work; `finish` may be called from any thread."""

    def __init__(
        self, work_id: str, kind: str, run: Callable[[], Any], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.id = work_id
        self.kind = kind
        self.run = run
        self._loop = loop
        self.stop: Callable[[], Any] | None = None  # ends a coroutine that runs on another loop
        self.wake: Callable[[], Any] | None = None  # raises in code that holds its thread
        self.is_ended = False  # its result is not used any more
        self.is_over = False  # it does not run any more
        self.result: asyncio.Future[Any] = loop.create_future()

    def end(self, on_stuck: Callable[[], None]) -> None:
        """Stop the work where that is possible, since its call has ended; on the engine's loop.

        Args:
            on_stuck: called where the work has begun and cannot be stopped.
        """
        self.is_ended = True
        if self.stop is not None:
            with suppress(RuntimeError):  # its loop is closed
                self.stop()
        self._wake(MOST_WAKES, on_stuck)

    def _wake(self, times: int, on_stuck: Callable[[], None]) -> None:
        """Raise an exception in the work, and again later, since it may catch the first one."""
        if self.is_over or self.wake is None:
            return
        with suppress(OSError, ValueError):  # its thread has just ended
            self.wake()
        if times == 0:
            on_stuck()
            return
        self._loop.call_later(WAKE_INTERVAL, self._wake, times - 1, on_stuck)

    def finish(self, value: object = None, error: BaseException | None = None) -> None:
        """Set the result or the error."""
        self.is_over = True
        if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration)):
            # Raised on the engine's loop, these would end the loop, or be lost.
            error = RuntimeError(typed_message(error))
        self._loop.call_soon_threadsafe(self._set, value, error)

    def _set(self, value: object, error: BaseException | None) -> None:
        if self.result.done():
            return
        if error is None:
            self.result.set_result(value)
        else:
            self.result.set_exception(error)


class ClientCalls:
    """The calls of one session that wait for an outside client; used on the engine's loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[DynamicToolResponse]] = {}

    async def ask(
        self, emit: Emit, call_id: str, tool: str, arguments: object
    ) -> DynamicToolResponse:
        """Emit a call for the clients and wait for the response; the caller limits the time."""
        answer: asyncio.Future[DynamicToolResponse] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        emit(DynamicToolCallRequest, call_id=call_id, tool=tool, arguments=arguments)
        try:
            return await answer
        finally:
            self._waiting.pop(call_id, None)

    def resolve(self, response: DynamicToolResponse) -> bool:
        """Pass a response to the call that waits for it; return False where none does."""
        waiting = self._waiting.pop(response.call_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(response)
        return True
