"""Questions on their way: each waits here under its id until an `Answer` op brings it home."""

import asyncio
import itertools
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from agent_magics.dispatch.context import Emit
from agent_magics.protocol.events import Question, QuestionResolved
from agent_magics.protocol.ops import Answer


class PendingQuestions:
    """The open questions of one session; lives on the engine's loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[asyncio.Future[Answer], Emit]] = {}
        self._numbers = itertools.count(1)

    def next_id(self) -> str:
        """Return an id that no other question has and nothing but its widget can know."""
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
        """Hand an answer to whoever waits; a late or second answer is dropped."""
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
    """Work for the thread that waits for the run: Python callables, which no event can carry."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._work: dict[str, Work] = {}
        self._numbers = itertools.count(1)

    def put(self, kind: str, run: Any) -> "Work":
        """Keep `run` under a new id."""
        work = Work(f"w{next(self._numbers)}", kind, run, self._loop)
        self._work[work.id] = work
        return work

    def take(self, work_id: str) -> "Work | None":
        """Return the work once; None when it was cancelled meanwhile."""
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
        self.result: asyncio.Future[Any] = loop.create_future()

    def end(self) -> None:
        """Nobody waits for it any more: end it where that is possible."""
        if self.stop is not None:
            with suppress(RuntimeError):  # its loop has just ended
                self.stop()

    def finish(self, value: Any = None, error: BaseException | None = None) -> None:
        """Bring the outcome home."""
        if isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration)):
            # On the engine's loop these would end the loop, or never arrive.
            error = RuntimeError(f"{type(error).__name__}: {error}")
        self._loop.call_soon_threadsafe(self._set, value, error)

    def _set(self, value: Any, error: BaseException | None) -> None:
        if self.result.done():
            return
        if error is None:
            self.result.set_result(value)
        else:
            self.result.set_exception(error)
