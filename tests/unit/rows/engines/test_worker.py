"""What a worker does with the questions that it is given."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from agent_magics.protocol.errors import FatalError
from agent_magics.rows.asking import Pace, RowAnswer, RowQuestion, Terms
from agent_magics.rows.engines import worker
from agent_magics.rows.engines.link import Link
from agent_magics.rows.engines.worker import Assignment, WorkerSession

ENOUGH = 20  # steps of the loop, in which a worker does all that it can do


class Waiting:
    """An asker whose questions get no answer."""

    def __init__(self) -> None:
        self.asked: list[object] = []

    async def ask(self, question: RowQuestion) -> RowAnswer:
        self.asked.append(getattr(question.items[0], "content", ""))
        await asyncio.Event().wait()
        return RowAnswer()

    def pace(self) -> Pace:
        return Pace(len(self.asked), 1)

    async def close(self) -> None:
        self.asked.append("closed")


def link(reader: Any, write: Any) -> Link:
    writer: Any = SimpleNamespace(write=write)
    return Link(reader, writer)


@pytest.mark.parametrize("steps", range(5))
def test_another_question_is_asked_in_place_of_one_that_is_dropped(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was asked before, also where both messages come together."""
    asker = Waiting()
    monkeypatch.setattr(worker, "_asker", lambda *_: asker)

    async def run() -> None:
        reader = asyncio.StreamReader()
        coordinator = link(None, reader.feed_data)
        session = WorkerSession(link(reader, len), Assignment(Terms("model")))
        running = asyncio.create_task(session.run())
        coordinator.send("most", 1)
        coordinator.send("ask", [(1, "dropped"), (2, "kept")])
        for _ in range(steps):
            await asyncio.sleep(0)
        coordinator.send("drop", [1])
        for _ in range(ENOUGH):
            await asyncio.sleep(0)
        reader.feed_eof()
        await running

    asyncio.run(run())
    assert asker.asked[-2:] == ["kept", "closed"]


class Refused(Waiting):
    """An asker that answers one question; then the server refuses all."""

    async def ask(self, question: RowQuestion) -> RowAnswer:
        self.asked.append(question)
        if len(self.asked) > 1:
            raise FatalError("The key is wrong.")
        return RowAnswer("paid for")


def test_what_was_answered_before_the_worker_fails_is_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "_asker", lambda *_: Refused())
    sent: list[bytes] = []

    async def run() -> None:
        reader = asyncio.StreamReader()
        session = WorkerSession(link(reader, sent.append), Assignment(Terms("model")))
        link(None, reader.feed_data).send("ask", [(1, "a"), (2, "b")])
        assert await session.run() == "The key is wrong."

    asyncio.run(run())
    *_, answers, failed = [json.loads(each[4:]) for each in sent]  # after each one's length
    assert failed == ["failed", "The key is wrong."]
    assert answers[:1] == ["answers"] and "paid for" in str(answers[1])
