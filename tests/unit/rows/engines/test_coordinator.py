"""The coordinator of a map, and what it and a worker say to each other."""

import asyncio
import json
import math
import os
import socket
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics._version import __version__
from agent_magics.protocol.codec import is_typed
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Usage, UserMessage
from agent_magics.rows.asking import RowAnswer, RowPlace, RowQuestion, Terms
from agent_magics.rows.engines import coordinator as coordinators
from agent_magics.rows.engines.coordinator import MOST_LOST, Coordinator, Worker
from agent_magics.rows.engines.link import Link
from agent_magics.rows.engines.messages import decoded, encoded
from agent_magics.rows.engines.worker import GROUP, Assignment, ModelSource
from agent_magics.rows.remote.limits import Allowance, Report, SharedLimits, Stated

TERMS = Terms("gpt-4o-mini")
PACE = (0, 50, "")


class NoLimits:
    minute = 60.0

    def __init__(self):
        self.reports = []

    async def share(self, report):
        self.reports.append(report)
        return Allowance(7, 0.5)


class NoLink:
    """Half a connection: takes what is sent."""

    def send(self, *message):
        json.dumps(message, default=str)


class Local:
    """An engine without workers: tests connect themselves."""

    async def listen(self, serve):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server, ""

    async def seat(self, invite, joined):
        self.invitation = invite()
        await asyncio.Event().wait()

    async def close(self):
        self.closed = True


def question(number):
    return RowQuestion("", (UserMessage(f"row {number}"),), TERMS)


def row_of(part, row):
    return RowQuestion("", (), TERMS, RowPlace(part, row))


def run(play, concurrency=None):
    """Open a coordinator, and let `play` speak to it."""

    async def whole():
        engine = Local()
        coordinator = Coordinator(
            engine, Assignment(TERMS, ModelSource(key="k")), NoLimits(), concurrency
        )
        await coordinator.open()
        await asyncio.sleep(0)
        try:
            await play(coordinator, engine)
        finally:
            await coordinator.close()

    asyncio.run(whole())


async def join(engine, seat=1):
    link = Link(*await asyncio.open_connection("127.0.0.1", engine.port))
    link.send("hello", engine.invitation.token, seat, __version__)
    begin = await link.read()
    assert begin[0] == "begin" and Assignment.read(begin[1]).terms == TERMS
    assert await link.read() == ["hold", GROUP]
    link.send("answers", [], PACE)
    return link


def test_both_workers_get_the_same_share():
    async def play(coordinator, engine):
        links = [await join(engine), await join(engine)]
        asks = [asyncio.create_task(coordinator.ask(question(n))) for n in range(20)]
        for link in links:
            word, questions = await link.read()
            assert word == "ask" and len(questions) == 10
            answers = [(n, *encoded(RowAnswer(said.upper()))) for n, said in questions]
            link.send("answers", answers, PACE)
        assert {each.text for each in await asyncio.gather(*asks)} == {
            f"ROW {n}" for n in range(20)
        }
        for link in links:
            await link.end()

    run(play)


@pytest.mark.parametrize("steps", range(8))
def test_a_worker_that_comes_at_the_end_is_hung_up_on(steps):
    async def play(coordinator, engine):
        with socket.create_connection(("127.0.0.1", engine.port)) as worker:
            for _ in range(steps):
                await asyncio.sleep(0)
            await coordinator.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            await asyncio.sleep(0)  # its socket is closed
            with suppress(ConnectionResetError):
                assert worker.recv(1) == b""

    run(play)


def test_a_row_that_takes_all_its_workers_with_it_is_given_up():
    async def play(coordinator, engine):
        ask = asyncio.create_task(coordinator.ask(question(1)))
        for _ in range(MOST_LOST):
            link = await join(engine)
            assert (await link.read())[0] == "ask"
            await link.end()
        assert (await ask).error == f"its worker ended {MOST_LOST} times before it had an answer"

    run(play)


def test_a_row_that_no_worker_had_begun_is_not_given_up():
    async def play(coordinator, engine):
        asks = [asyncio.create_task(coordinator.ask(question(n))) for n in range(2)]
        for _ in range(MOST_LOST):
            link = await join(engine)
            coordinator._workers[0].rate = 1.0  # so it is given a second one ahead
            assert await link.read() == ["most", 1]
            assert len((await link.read())[1]) == 2
            await link.end()
        assert (await asks[0]).kind == "its worker ended"
        link = await join(engine)
        assert await link.read() == ["most", 1]
        _, ((number, said),) = await link.read()
        link.send("answers", [(number, *encoded(RowAnswer(said)))], PACE)
        assert (await asks[1]).text == "row 1"
        await link.end()

    run(play, concurrency=1)


def test_a_limit_of_requests_is_shared_out():
    async def play(coordinator, engine):
        first = await join(engine)
        assert await first.read() == ["most", 5]
        second = await join(engine)
        assert [await second.read(), await first.read()] == [["most", 2], ["most", 3]]
        await second.end()
        assert await first.read() == ["most", 5]
        await first.end()

    run(play, concurrency=5)


async def answer(link):
    """Answer what a worker is asked; return how many that were."""
    word, questions = await link.read()
    assert word == "ask"
    link.send("answers", [(number, *ANSWER) for number, _ in questions], PACE)
    return len(questions)


def test_a_worker_without_a_place_is_given_nothing():
    async def play(coordinator, engine):
        first, second = await join(engine), await join(engine)
        assert [await first.read(), await second.read()] == [["most", 1], ["most", 0]]
        asks = [asyncio.create_task(coordinator.ask(question(n))) for n in range(3)]
        assert await answer(first) == 1
        await asks[0]
        await first.end()
        assert await second.read() == ["most", 1]
        for ask in asks[1:]:
            assert await answer(second) == 1
            assert (await ask).text == "said"
        await second.end()

    run(play, concurrency=1)


def test_a_place_goes_to_the_worker_that_alone_can_ask():
    async def play(coordinator, engine):
        first, second = await join(engine, 1), await join(engine, 2)
        assert [await first.read(), await second.read()] == [["most", 1], ["most", 0]]
        coordinator.settle(1, 1)
        coordinator.settle(2, 2)
        second.send("answers", [], (0, 0, ""))  # it may begin none, and says so
        for part, (there, other) in {2: (second, first), 1: (first, second)}.items():
            ask = asyncio.create_task(coordinator.ask(row_of(part, 0)))
            assert [await there.read(), await other.read()] == [["most", 1], ["most", 0]]
            assert await answer(there) == 1
            assert (await ask).text == "said"
        for link in (first, second):
            await link.end()

    run(play, concurrency=1)


def test_a_worker_that_stays_busy_keeps_its_place_and_gives_it_on_at_the_end():
    async def play(coordinator, engine):
        first, second = await join(engine, 1), await join(engine, 2)
        assert [await first.read(), await second.read()] == [["most", 1], ["most", 0]]
        coordinator.settle(1, 1)
        coordinator.settle(2, 2)
        rows = row_of(1, 0), row_of(2, 0), row_of(1, 1)
        asks = [asyncio.create_task(coordinator.ask(row)) for row in rows]
        assert await answer(first) == 1
        word, questions = await first.read()
        assert (word, len(questions)) == ("ask", 1) and not coordinator._workers[1].held
        asks[2].cancel()  # its last one
        assert (await first.read())[0] == "drop"
        assert await first.read() == ["most", 0]
        assert await second.read() == ["most", 1]
        assert await answer(second) == 1
        assert [(await ask).text for ask in asks[:2]] == ["said", "said"]
        for link in (first, second):
            await link.end()

    run(play, concurrency=1)


def test_many_workers_send_seldom():
    async def play(coordinator, engine):
        links = [await join(engine)]
        for _ in range(44):
            other = Link(*await asyncio.open_connection("127.0.0.1", engine.port))
            other.send("hello", engine.invitation.token, 1, __version__)
            assert (await other.read())[0] == "begin"
            links.append(other)
        assert [await links[0].read() for _ in range(2)] == [["hold", 0.04], ["hold", 0.08]]
        for link in links:
            await link.end()

    run(play)


def test_what_may_be_sent_is_asked_of_the_coordinator():
    async def play(coordinator, engine):
        link = await join(engine)
        link.send("limits", {"want": 3, "requests": {"limit": 9, "remaining": 2}, "tokens": None})
        assert await link.read() == ["grant", 7, 0.5]
        (report,) = coordinator._limits.reports
        assert report.want == 3 and report.requests.remaining == 2
        await link.end()

    run(play)


BIG = "x" * (16 << 20)  # more than a socket takes


def fill(coordinator):
    """Give the only worker, which does not read, a large question."""
    coordinator._deal()
    (worker,) = coordinator._workers
    assert worker.held and worker.link._writer.transport.get_write_buffer_size()
    return worker


def test_a_frozen_worker_is_given_up_whatever_is_not_sent_yet(monkeypatch):
    monkeypatch.setattr(coordinators, "SILENT", 1.0)

    async def play(coordinator, engine):
        ask = asyncio.create_task(coordinator.ask(RowQuestion("", (UserMessage(BIG),), TERMS)))
        frozen = await join(engine)
        worker = fill(coordinator)
        worker.heard = -math.inf
        await worker.gone.wait()
        assert list(coordinator._queue) == [1]
        ask.cancel()
        await frozen.end()

    run(play)


def test_the_end_of_a_map_waits_for_no_frozen_worker():
    async def play(coordinator, engine):
        ask = asyncio.create_task(coordinator.ask(RowQuestion("", (UserMessage(BIG),), TERMS)))
        frozen = await join(engine)
        worker = fill(coordinator)
        ask.cancel()
        await coordinator.close()
        await worker.link.end()
        await frozen.end()

    run(play)


@pytest.mark.parametrize("what", ["seat", "listen"])
def test_an_engine_that_fails_ends_the_map(what):
    class Broken(Local):
        async def listen(self, serve):
            if what == "listen":
                raise OSError(98, "Address already in use")
            return await super().listen(serve)

        async def seat(self, invite, joined):
            raise AttributeError("no scheduler")

    async def whole():
        coordinator = Coordinator(Broken(), Assignment(TERMS), NoLimits(), None)
        try:
            await coordinator.open()
            await coordinator.ask(question(1))
        finally:
            await coordinator.close()

    words = {"seat": "AttributeError: no scheduler", "listen": "connect: Address already in use"}
    with pytest.raises(FatalError, match=words[what]):
        asyncio.run(whole())


def test_another_version_is_named():
    async def play(coordinator, engine):
        ask = asyncio.create_task(coordinator.ask(question(1)))
        link = Link(*await asyncio.open_connection("127.0.0.1", engine.port))
        link.send("hello", engine.invitation.token, 1, "0.0.1")
        assert (await link.read())[0] == "end"
        with pytest.raises(FatalError, match=r"a worker runs agent-magics 0\.0\.1"):
            await ask
        await link.end()

    run(play)


def test_one_worker_that_cannot_ask_ends_nothing_while_another_can():
    async def play(coordinator, engine):
        able, other = await join(engine), await join(engine)
        asks = [asyncio.create_task(coordinator.ask(question(n))) for n in range(4)]
        _, questions = await able.read()
        able.send("answers", [(n, *encoded(RowAnswer(said))) for n, said in questions], PACE)
        await asyncio.gather(*asks[:2])
        await other.read()
        other.send("failed", "No way out of this machine.")
        await other.end()
        _, rest = await able.read()
        able.send("answers", [(n, *encoded(RowAnswer(said))) for n, said in rest], PACE)
        assert {each.error for each in await asyncio.gather(*asks)} == {None}
        await able.end()

    run(play)


ANSWER = encoded(RowAnswer("said"))
HOSTILE = (None, True, -1, 1e400, float("nan"), 10**30, "x", [], {}, [[]], {"a": 1})


def changed(message):
    """Yield copies of a message with each part, at any depth, as something else."""
    yield from HOSTILE
    if isinstance(message, list | tuple):
        for at, part in enumerate(message):
            for other in changed(part):
                yield [*message[:at], other, *message[at + 1 :]]
    if isinstance(message, dict):
        for name, part in message.items():
            for other in changed(part):
                yield {**message, name: other}


REPORT = asdict(Report(requests=Stated(10.0, 5.0)))
SENT = [["answers", [[1, *ANSWER]], list(PACE)], ["limits", REPORT], ["failed", "x"], ["other"]]


def test_a_worker_can_send_anything():
    """It is answered as before, or its connection ends and its questions wait for another."""

    async def play(coordinator, engine):
        coordinator._limits, answered = SharedLimits(Path(os.devnull)), 0
        for message in (each for sent in SENT for each in changed(sent)):
            worker = Worker(link=NoLink())
            coordinator._workers, coordinator._failure, coordinator._questions = [worker], None, 0
            asked = asyncio.ensure_future(coordinator.ask(question(1)))
            await asyncio.sleep(0)
            coordinator._deal()
            with suppress(FatalError):
                await coordinator._hear(worker, message if isinstance(message, list) else [message])
            coordinator._deal()
            pace = coordinator.pace()
            assert 0 <= pace.in_flight + pace.allowed < 1e13 and isinstance(pace.limit, str)
            await asyncio.sleep(0)
            asked.cancel()
            with suppress(asyncio.CancelledError, FatalError):
                answer = await asked
                answered += 1
                assert is_typed(answer) and is_typed(answer.usage)
            coordinator._workers.clear()
        assert answered  # changes that are none, such as a cost of None

    run(play)


@pytest.mark.parametrize(
    "message",
    [["answers", [[1, *ANSWER]] * 20_001, PACE], ["evil", 1], ["answers", [[1, *ANSWER]], PACE, 5]],
    ids=["more answers than questions", "another word", "more parts"],
)
def test_a_worker_that_sends_what_none_of_ours_does_is_hung_up_on(message):
    async def play(coordinator, engine):
        with pytest.raises(FatalError, match="no message of this version"):
            await coordinator._hear(Worker(link=NoLink()), message)

    run(play)


def test_what_a_worker_says_of_an_error_is_short():
    said = decoded(encoded(RowAnswer(error="e" * 1_000_000, kind="k" * 1_000_000)))
    assert (len(said.error), len(said.kind)) == (2_000, 100)


def test_a_worker_answers_only_what_it_was_given():
    async def play(coordinator, engine):
        given, other = Worker(link=NoLink()), Worker(link=NoLink())
        coordinator._workers = [given]
        asked = asyncio.ensure_future(coordinator.ask(question(1)))
        await asyncio.sleep(0)
        coordinator._deal()
        await coordinator._hear(other, ["answers", [[1, *encoded(RowAnswer("forged"))]], PACE])
        assert not asked.done()
        await coordinator._hear(given, ["answers", [[1, *ANSWER]], PACE])
        assert (await asked).text == "said"
        coordinator._workers.clear()

    run(play)


@pytest.mark.parametrize(
    "sent",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\2{}",
        b"\0\0\0\1[",
        b'\0\0\0\x1d["hello", "\\ud800", 1, "1.0"]',
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_strangers_get_nothing(sent, caplog):
    async def play(coordinator, engine):
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()

    run(play)
    assert not caplog.records


def test_the_key_is_in_no_text_of_an_assignment_or_invitation():
    async def play(coordinator, engine):
        assert engine.invitation.token not in repr(engine.invitation)

    run(play)
    assert "sk-1" not in repr(Assignment(TERMS, ModelSource(key="sk-1")))


USAGE = st.builds(Usage, *[st.integers(0, 9)] * 4, st.none() | st.floats(0, 1))


@given(st.builds(RowAnswer, st.text(), USAGE, st.none() | st.floats(0, 1), st.none() | st.text()))
def test_answers_arrive_as_they_were(answer):
    assert decoded(encoded(answer)) == answer
