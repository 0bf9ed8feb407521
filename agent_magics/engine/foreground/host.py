"""The surroundings of a run, as whoever waits for it lends them: who answers, what SIGINT does."""

import inspect
import json
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from agent_magics.dispatch.elicitation import accepted
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.loopless import run_to_end
from agent_magics.protocol.events import ApprovalRequested, ElicitationRequested, Question
from agent_magics.protocol.ops import DECISIONS, Answer

NOBODY = (
    "nobody can be asked here. To allow such calls beforehand, answer with on_question=...; "
    "approval='never' lets code run in the kernel, sandbox='danger-full-access' lets commands run. "
    "Or find a way that needs no approval."
)


class Host(Protocol):
    """The surroundings of a run: who answers, how live code runs, what SIGINT does meanwhile."""

    def answer(self, question: Question) -> "Answer | Awaitable[Answer]":
        """Answer a question, at once or when awaited."""
        ...

    def answer_blocking(self, question: Question) -> Answer:
        """Answer a question from a thread that has no loop to give."""
        ...

    def guard(self) -> AbstractContextManager[Any]:
        """Hold around work on this thread, so that an interrupt reaches the person's code."""
        ...


class ProgramHost:
    """The surroundings of a plain program: `on_question` answers, or nobody does."""

    def __init__(self, on_question: Callable[[Question], Any] | None = None) -> None:
        self._on_question = on_question

    def answer(self, question: Question) -> "Answer | Awaitable[Answer]":
        """Ask `on_question`, plain or async."""
        if self._on_question is None:
            return denied(question)
        answer = self._on_question(question)
        if inspect.isawaitable(answer):
            return self._await(question, answer)
        return as_answer(question, answer)

    async def _await(self, question: Question, answer: Awaitable[Any]) -> Answer:
        return as_answer(question, await answer)

    def answer_blocking(self, question: Question) -> Answer:
        """Ask `on_question`; an async one runs on a loop of its own."""
        answer = self.answer(question)
        return answer if isinstance(answer, Answer) else POOL.submit(run_to_end, answer).result()

    def guard(self) -> AbstractContextManager[Any]:
        """Let SIGINT raise in the person's function; asyncio's own handler would only cancel."""
        return _plain_interrupts()


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def denied(question: Question, reason: str = NOBODY) -> Answer:
    """Return the answer that policy gives when nobody can be asked."""
    return Answer(question_id=question.question_id, decision="deny", feedback=reason, by="policy")


def as_answer(question: Question, value: Any, by: str = "program") -> Answer:
    """Turn what `on_question` returned into an answer to this question.

    Args:
        question: what was asked.
        value: a decision's name, or an object with `decision` and perhaps `feedback` and
            `edited_arguments` (JSON text, or a dict) or `edited_text` (the question's `editable`,
            changed); for a server's form also a dict of its fields, which accepts it.
        by: who answered.
    """
    if isinstance(question, ElicitationRequested):
        content = value if isinstance(value, Mapping) else None
        if content is not None or (isinstance(value, str) and value.startswith("approve")):
            return accepted(question, content, by=by)
    decision = value if isinstance(value, str) else getattr(value, "decision", None)
    any_words = not isinstance(question, (ApprovalRequested, ElicitationRequested))
    if not isinstance(decision, str) or not (any_words or decision in DECISIONS):
        choices = ", ".join(DECISIONS)
        return denied(
            question, f"on_question returned {value!r}, which is no decision; there are: {choices}."
        )
    edited = getattr(value, "edited_arguments", None)
    return Answer(
        question_id=question.question_id,
        decision=decision,
        feedback=str(getattr(value, "feedback", "") or ""),
        edited_arguments=edited
        if edited is None or isinstance(edited, str)
        else json.dumps(edited),
        edited_text=getattr(value, "edited_text", None),
        by=by,
    )


def broken(question: Question, error: Exception) -> Answer:
    """Return the answer where `on_question` itself failed."""
    return denied(question, f"on_question raised {type(error).__name__}: {error}")
