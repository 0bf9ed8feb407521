"""The HTTP client of `agent.map`, against a server in another process that misbehaves on order."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from agent_magics.models.providers.endpoints import forget_wires, remember_wire
from agent_magics.models.retry import RetryPolicy
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import UserMessage
from agent_magics.rows.asking import NotSent, RowAnswer, RowQuestion, Terms
from agent_magics.rows.remote import client, gate
from agent_magics.rows.remote.client import RowClient
from agent_magics.rows.remote.gate import FIRST
from agent_magics.rows.remote.limits import Allowance, Report, read_knowledge
from tests.support.models.row_server import RowServer

pytestmark = pytest.mark.soak

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
TERMS = Terms("gpt-4o-mini", "Answer briefly.")
TYPED = Terms("gpt-4o-mini", "Answer briefly.", SCHEMA)
QUICK = RetryPolicy(first_delay=0.01, longest_delay=0.05)
KEY = "sk-wire-0123456789abcdefghijkl"


@pytest.fixture(autouse=True)
def _unknown_servers(monkeypatch):
    forget_wires()
    monkeypatch.setattr(client, "_learned", {})


def ask_all(
    server: RowServer,
    count: int,
    terms: Terms = TERMS,
    *,
    then: Callable[[RowClient], Awaitable[None]] | None = None,
    **options,
) -> list[RowAnswer]:
    async def run() -> list[RowAnswer]:
        options.setdefault("retries", QUICK)
        asker = RowClient(base_url=server.base_url, **options)
        try:
            answers = await asyncio.gather(*(asker.ask(question(n, terms)) for n in range(count)))
            if then is not None:
                await then(asker)
            return answers
        finally:
            await asker.close()

    return asyncio.run(run())


def question(number: int, terms: Terms = TERMS) -> RowQuestion:
    return RowQuestion(str(number), (UserMessage(f"row {number}"),), terms)


def outcomes(server: RowServer) -> Counter[str]:
    return Counter(entry["outcome"] for entry in server.log())


@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize("wire_api", ["auto", "same"])
def test_rows_are_answered_on_both_wires(wire, wire_api):
    with RowServer(wires=(wire,)) as server:
        answers = ask_all(server, 20, wire_api=wire if wire_api == "same" else "auto")
        assert [answer.text for answer in answers] == [f"row {n}" for n in range(20)]
        assert {answer.error for answer in answers} == {None}
        assert sum(answer.usage.input_tokens for answer in answers) == 400
        assert all(answer.cost for answer in answers)
        log = server.log()
    # The wire is found out with the first question, and asked alone from then on.
    assert sum(entry["outcome"] == "404" for entry in log) <= 1
    assert {entry["body"]["stream"] for entry in log} == {False}


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_another_server_at_the_same_address_is_asked_on_the_wire_that_it_has(wire):
    with RowServer(wires=(wire,)) as server:
        remember_wire(server.base_url, "chat" if wire == "responses" else "responses")
        answers = ask_all(server, 5)
    assert [answer.text for answer in answers] == [f"row {n}" for n in range(5)]


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_a_schema_is_sent_and_the_answer_fits_it(wire):
    with RowServer(wires=(wire,)) as server:
        answers = ask_all(server, 3, TYPED)
    assert [answer.text for answer in answers] == [f'{{"name": "row {n}"}}' for n in range(3)]


def test_a_server_that_refuses_schemas_is_asked_without():
    with RowServer(refuses_schema=True) as server:
        answers = ask_all(server, 20, TYPED)
        assert [answer.text for answer in answers] == [f"row {n}" for n in range(20)]
        assert outcomes(server) == {"400": 1, "answered": 20}


@pytest.mark.parametrize("forgets", [True, False])
def test_a_second_map_asks_as_the_first_one_learned_to(monkeypatch, forgets):
    if forgets:
        monkeypatch.setattr(client, "KEPT", 0.0)
    with RowServer(refuses_schema=True, delay=1.0) as server:
        ask_all(server, 150, TYPED)
        first = len(server.log())
        ask_all(server, 100, TYPED)
        second = server.log()[first:]
    assert [entry["outcome"] for entry in second].count("400") == forgets
    # The server sees how many are under way: the first one alone, and then as many as at first.
    alone = [entry["now"] for entry in second].count(1)
    assert max(entry["now"] for entry in second) > (1 if forgets else FIRST)
    assert alone > 1 if forgets else alone == 1


def test_of_many_servers_only_the_latest_are_remembered(monkeypatch):
    monkeypatch.setattr(client, "MOST_LEARNED", 1)
    with RowServer() as first, RowServer() as second:
        for server in (first, second, first):
            before = client._learned.copy()
            ask_all(server, 1)
            assert len(client._learned) == 1 and client._learned.keys() != before.keys()


@pytest.mark.parametrize("fault", ["429", "500", "529", "cut"])
def test_every_row_is_answered_where_a_fifth_of_the_requests_fails(fault):
    with RowServer(faults={fault: 0.2}) as server:
        answers = ask_all(server, 60, retries=replace(QUICK, tries=12))
        assert [answer.text for answer in answers] == [f"row {n}" for n in range(60)]
        counts = outcomes(server)
    assert counts["answered"] == 60
    assert counts[fault] > 0


@pytest.mark.parametrize(
    ("fault", "kind"), [("silence", "timed out"), ("garbage", "garbled"), ("half", "garbled")]
)
def test_every_row_has_an_answer_or_an_error_where_a_fifth_of_the_answers_is_none(fault, kind):
    with RowServer(faults={fault: 0.2}) as server:
        answers = ask_all(server, 60, timeout=0.5 if fault == "silence" else 600.0)
        counts = outcomes(server)
    assert len(answers) == 60 and counts[fault] > 0
    for number, answer in enumerate(answers):
        assert answer.text == f"row {number}" or (answer.error and answer.kind == kind)
    answered = sum(not answer.error for answer in answers)
    # A row is asked three times; where time is short, an answer may come too late.
    assert counts["answered"] == answered > 50 or (fault == "silence" and answered > 0)


def test_every_row_is_accounted_for_where_all_requests_fail(monkeypatch):
    monkeypatch.setattr(gate, "FIRST_PAUSE", 0.01)
    # Half of what reaches the gate is a refusal, so doubled pauses would have no mean.
    monkeypatch.setattr(gate, "LONGEST_PAUSE", 0.05)
    faults = dict.fromkeys(("429", "500", "529", "silence", "garbage"), 0.2)
    with RowServer(faults=faults) as server:
        answers = ask_all(server, 40, timeout=0.1, concurrency=40)
    assert len(answers) == 40
    assert all(answer.error and not answer.text for answer in answers)
    assert {a.kind for a in answers} <= {"status 500", "status 529", "timed out", "garbled"}


@pytest.mark.parametrize("states", [True, False], ids=["stated", "measured"])
def test_every_row_is_answered_where_a_server_has_a_rate(states):
    with RowServer(rate=1200, minute=6.0, burst=30, states=states) as server:
        answers = ask_all(server, 120, minute=6.0)
        assert all(answer.error is None for answer in answers)
        assert outcomes(server)["answered"] == 120


SHORT = {"minute": 0.6, "retries": RetryPolicy(longest_asked=0.6)}


def test_a_server_that_answers_slowly_and_few_at_a_time_is_waited_for():
    with RowServer(at_once=4, delay=0.3) as server:
        answers = ask_all(server, 9, **SHORT)
        counts = outcomes(server)
    assert {answer.error for answer in answers} == {None} and counts["429"]


def test_a_server_that_refuses_all_is_given_up():
    with RowServer(rate=0.001, burst=1, asks=False) as server:
        with pytest.raises(FatalError, match="fault 429"):
            ask_all(server, 9, **SHORT)
        assert outcomes(server)["answered"] == 1


def test_a_wrong_key_ends_all_and_is_not_shown(caplog):
    with RowServer(key="another") as server:
        with pytest.raises(FatalError) as caught:
            ask_all(server, 20, api_key=KEY)
        assert len(server.log()) <= 2
    assert KEY not in str(caught.value) + repr(caught.value) + caplog.text


def test_the_key_is_sent_and_stands_in_no_repr():
    with RowServer(key=KEY) as server:
        shown: list[str] = []

        async def look(client: RowClient) -> None:
            shown.append(repr(client) + repr(client._server))

        answers = ask_all(server, 3, api_key=KEY, then=look)
    assert all(answer.error is None for answer in answers)
    assert KEY not in "".join(shown)


def test_the_key_stands_in_no_file_and_no_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with RowServer(key=KEY, states=True, rate=6000) as server:
        ask_all(server, 3, api_key=KEY)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) == 1
    assert KEY not in str(files[0]) + files[0].read_text()


def test_a_server_that_is_not_there_ends_all():
    with RowServer() as server:
        pass
    with pytest.raises(FatalError, match="Cannot connect"):
        ask_all(server, 5)


def test_an_answer_in_the_middle_of_others_that_fails_is_only_its_own(tmp_path):
    with RowServer(faults={"schema": 0.0, "403": 0.1}, seed=3) as server:
        answers = ask_all(server, 50)
        counts = outcomes(server)
    errors = [answer for answer in answers if answer.error]
    assert len(errors) == counts["403"] > 0
    assert {answer.kind for answer in errors} == {"status 403"}


def test_a_cancelled_question_gives_its_place_back():
    with RowServer(delay=0.05) as server:

        async def run() -> Sequence[RowAnswer]:
            client = RowClient(base_url=server.base_url, concurrency=2)
            tasks = [asyncio.create_task(client.ask(question(n))) for n in range(10)]
            await tasks[0]
            for task in tasks[1:6]:
                task.cancel()
            answers = await asyncio.gather(*tasks[6:])
            assert client.pace().in_flight == 0
            await client.close()
            return answers

        assert [answer.text for answer in asyncio.run(run())] == [
            "row 6",
            "row 7",
            "row 8",
            "row 9",
        ]


def test_a_question_that_waits_for_its_next_try_is_not_sent_after_a_stop():
    async def run(server: RowServer) -> None:
        waits = asyncio.Event()

        async def wait(_: float) -> None:
            waits.set()
            await asyncio.Event().wait()

        asker = RowClient(base_url=server.base_url, retries=replace(QUICK, wait=wait))
        asking = asyncio.create_task(asker.ask(question(0)))
        try:
            await waits.wait()
            asker.stop()
            with pytest.raises(NotSent):
                await asyncio.wait_for(asking, 60)
        finally:
            await asker.close()

    with RowServer(faults={"500": 1.0}) as server:
        asyncio.run(run(server))
        assert len(server.log()) == 1


def test_no_more_are_in_flight_than_allowed():
    with RowServer(delay=0.05) as server:
        ask_all(server, 30, concurrency=3)
        assert max(entry["now"] for entry in server.log()) == 3


def test_clients_share_what_they_know_of_a_rate(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with RowServer(rate=6000, states=True) as server:
        for _ in range(2):
            ask_all(server, 20)
    (file,) = tmp_path.rglob("limits/*.json")
    assert read_knowledge(file.read_bytes()).request_limit == 6000


def test_a_first_question_that_is_cancelled_leaves_nothing_behind() -> None:
    async def run() -> set[asyncio.Task[None]]:
        asked, serving = asyncio.Event(), set[asyncio.Task[None]]()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            serving.add(client.current_task())
            await reader.read(1)
            asked.set()
            await reader.read()  # until who asks has gone
            writer.close()

        server = await asyncio.start_server(hold, "127.0.0.1", 0)
        address = "http://{}:{}/v1".format(*server.sockets[0].getsockname())
        asker = RowClient("chat", base_url=address, api_key=KEY, limits=Alone())
        for number in range(2):
            asked.clear()
            asking = asyncio.create_task(asker.ask(question(number)))
            await asked.wait()
            asking.cancel()
            await asyncio.wait({asking})
        await asker.close()
        await asyncio.wait(serving)
        server.close()
        return asyncio.all_tasks() - {client.current_task()}

    assert asyncio.run(run()) == set()


class Alone:
    """Limits of a server that has none, and that nobody else asks."""

    minute = 60.0

    async def share(self, report: Report) -> Allowance:
        return Allowance(math.inf)
