"""Defines the host of a run: it answers questions, runs live code, and handles SIGINT."""

import asyncio
import inspect
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from agent_magics.dispatch.pool import POOL
from agent_magics.engine.foreground.interrupt import handling
from agent_magics.engine.foreground.sync_bridge import run_to_end
from agent_magics.protocol.errors import typed_message
from agent_magics.protocol.events import ApprovalRequested, FormRequested, Question
from agent_magics.protocol.ops import DECISIONS, Answer, denied

NOBODY = (
    "nobody can be asked here. To allow such calls beforehand, answer with on_question=...; "
    "approval='never' lets code run in the kernel, sandbox='danger-full-access' lets commands run. "
    "Or find a way that needs no approval."
)
NOBODY_FORM = "nobody can be asked here; a program answers with on_question=...."


class Host(Protocol):
    """Answers questions of a run, runs its live code, and handles SIGINT meanwhile."""

    def answer(self, question: Question) -> "Answer | Awaitable[Answer]":
        """Answer a question, at once or when awaited."""

    def answer_blocking(self, question: Question) -> Answer:
        """Answer a question on a thread whose event loop, if any, is busy."""

    def guard(self) -> AbstractContextManager[Any]:
        """Let an interrupt raise in the person's code that runs inside this context."""


class ProgramHost:
    """Hosts runs in a plain program: `on_question` answers questions, or nobody does."""

    def __init__(self, on_question: Callable[[Question], Any] | None = None) -> None:
        self._on_question = on_question

    def answer(self, question: Question) -> "Answer | Awaitable[Answer]":
        """Ask `on_question`, plain or async."""
        if self._on_question is None:
            return denied(
                question.question_id, NOBODY_FORM if isinstance(question, FormRequested) else NOBODY
            )
        answer = self._on_question(question)
        if inspect.isawaitable(answer):
            return self._await(question, answer)
        return as_answer(question, answer)

    async def _await(self, question: Question, answer: Awaitable[object]) -> Answer:
        return as_answer(question, await answer)

    def answer_blocking(self, question: Question) -> Answer:
        """Ask `on_question`; an async one runs on a loop of its own, which an interrupt ends."""
        answer = self.answer(question)
        if isinstance(answer, Answer):
            return answer
        given_up: Future[None] = Future()
        try:
            answered: Answer = POOL.submit(run_to_end, _until(given_up, answer)).result()
            return answered
        except KeyboardInterrupt:
            given_up.set_result(None)
            raise

    def guard(self) -> AbstractContextManager[Any]:
        """Restore Python's SIGINT handler, since asyncio's own would only cancel a task."""
        return handling(signal.SIGINT, signal.default_int_handler)


async def _until(given_up: Future[None], answer: Awaitable[Answer]) -> Answer:
    """Await an answer until another thread gives it up."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # this is a coroutine

    def cancel(_: Future[None]) -> None:
        with suppress(RuntimeError):  # its loop is closed
            loop.call_soon_threadsafe(task.cancel)

    given_up.add_done_callback(cancel)
    return await answer


def as_answer(question: Question, value: object) -> Answer:
    """Convert the result of `on_question` to an answer to this question.

    Args:
        question: the question.
        value: a decision's name, or an object with `decision` and perhaps `feedback` and
            `edited_arguments` (JSON text, or a dict) or `edited_text` (the question's `editable`,
            changed); for a form also a dict of its fields, which accepts it.
    """
    if isinstance(question, FormRequested):
        content = value if isinstance(value, Mapping) else None
        if content is not None or (isinstance(value, str) and value.startswith("approve")):
            from agent_magics.mcp.elicitation.answers import accepted  # noqa: PLC0415 - for forms

            return accepted(question, content, by="program")
    decision = value if isinstance(value, str) else getattr(value, "decision", None)
    any_words = not isinstance(question, ApprovalRequested | FormRequested)
    if not isinstance(decision, str) or not (any_words or decision in DECISIONS):
        choices = ", ".join(DECISIONS)
        return denied(
            question.question_id,
            f"on_question returned {value!r}, which is no decision; there are: {choices}.",
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
        by="program",
    )


def broken(question: Question, error: Exception) -> Answer:
    """Return a denial that says how `on_question` itself failed."""
    return denied(question.question_id, f"on_question raised {typed_message(error)}")
