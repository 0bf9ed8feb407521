"""Maps through a provider's batch API: equal to plain ones, taken up again, never paid twice."""

import asyncio
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest

from agent_magics import Agent
from agent_magics.kernel.commands.maps import MAPS, NONE
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.rows import outcomes
from agent_magics.rows.batches import job as batch_job
from agent_magics.rows.batches import pack as packs
from agent_magics.rows.batches.api import Batch, BatchApi, open_api
from agent_magics.rows.batches.job import BatchJob
from agent_magics.rows.batches.ledger import Ledger, Sent, now
from agent_magics.rows.batches.pack import Pack
from agent_magics.rows.outcomes import Parts
from agent_magics.rows.planning import Watcher
from tests.support.models.batch_server import BatchServer, DyingBatchServer
from tests.support.models.row_server import RowServer
from tests.support.rows.watchers import When, stop_at, wait_until
from tests.support.turns import PATIENCE

pytestmark = pytest.mark.soak  # each starts a server of its own

KEY = "sk-map-0123456789abcdefghij"


@dataclass
class Complaint:
    kind: str
    urgent: bool


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr(batch_job, "FIRST_LOOK", 0.01)


def rows(count):
    return [f"row {number} \N{SNOWMAN}\u2028" for number in range(count)]


def mapped(server, count, *, cache, wire="auto", output=None, stops_at="", **options):
    options = {"batch": True, "ask_above": None, "cache": cache, **options}
    with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY, wire_api=wire) as agent:
        mapping = agent.mapping("{{text}}", rows(count), output=output, options=options)
        return mapping.wait_sync(stop_at(agent, stops_at) if stops_at else None)


@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.parametrize("output", [None, Complaint], ids=["text", "type"])
def test_it_is_the_plain_map_at_half_the_price(tmp_path, wire, output):
    with BatchServer(key=KEY) as server:
        plain = mapped(server, 300, cache=tmp_path / "a", wire=wire, output=output, batch=False)
        direct = [entry["body"] for entry in server.log()]
        half = mapped(server, 300, cache=tmp_path / "b", wire=wire, output=output)
        batched = [entry["body"] for entry in server.log()[300:]]
        assert len(server.batches()) == 1
    assert sorted(map(json.dumps, direct)) == sorted(map(json.dumps, batched))
    assert half.frame.drop(columns="cost").equals(plain.frame.drop(columns="cost"))
    assert half.cost == pytest.approx(plain.cost / 2) and plain.cost > 0
    assert list(half.frame["cost"]) == pytest.approx(list(plain.frame["cost"] / 2))
    assert half.usage == plain.usage


def test_a_server_without_it_is_refused_before_anything_is_spent(tmp_path):
    with RowServer() as server:
        with pytest.raises(FatalError, match=r"has no batch API: .* Nothing was asked"):
            mapped(server, 100, cache=tmp_path / "a", ask_above=1.0)
        assert not [entry for entry in server.log() if entry["outcome"] == "answered"]


@pytest.mark.parametrize("options", [{"cache": False}, {"replay": True}], ids=["cache", "replay"])
def test_what_cannot_be_taken_up_again_is_refused(tmp_path, options):
    replay = str(tmp_path / "r.jsonl") if options.pop("replay", None) else None
    with (
        Agent("gpt-4o-mini", api_key=KEY, base_url="http://127.0.0.1:9/v1", replay=replay) as agent,
        pytest.raises(FatalError, match="batch=True needs a server and the cache"),
    ):
        agent.map_sync("{{text}}", ["a"], batch=True, **options)


def test_files_and_batches_keep_to_their_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(packs, "MOST_REQUESTS", 40)
    with BatchServer(most_running=2) as server:
        done = mapped(server, 190, cache=tmp_path / "a")
        states = Counter(each["status"] for each in server.batches())
        sizes = {each.count("\n") for each in server.files()}
    assert not len(done.failed) and done.usage.input_tokens == 190 * 20
    assert max(sizes) == 40
    assert states["completed"] == 5 and set(states) <= {"completed", "failed"}


def test_a_batch_that_another_one_left_no_room_is_sent_again(tmp_path, monkeypatch):
    """Also where the other one began later, and has ended when the refusal is read."""
    monkeypatch.setattr(packs, "MOST_REQUESTS", 40)
    create, see = BatchApi.create, BatchJob._see
    both, met = asyncio.Barrier(2), set()

    async def create_together(self, file_id, token):
        if token in met:
            return await create(self, file_id, token)
        met.add(token)
        await both.wait()
        created = await create(self, file_id, token)
        await both.wait()  # or the one could end before the other has begun
        return created

    async def see_late(self, token, batch):
        while batch.is_full and self._running() - {token}:
            self._ended_one.clear()
            await self._ended_one.wait()
        await see(self, token, batch)

    monkeypatch.setattr(BatchApi, "create", create_together)
    monkeypatch.setattr(BatchJob, "_see", see_late)
    with BatchServer(most_running=1) as server:
        done = mapped(server, 80, cache=tmp_path / "a")
        states = Counter(each["status"] for each in server.batches())
    assert not len(done.failed)
    assert (states["completed"], states["failed"]) == (2, 1)


def test_rows_that_wait_for_a_batch_need_no_room(tmp_path, monkeypatch):
    """Of each part an earlier call has answered all rows but one, so that none is whole."""
    monkeypatch.setattr(outcomes, "MOST_HELD", 20)
    monkeypatch.setattr("agent_magics.rows.mapping.Parts", partial(Parts, span=10))
    count = 1_200
    with BatchServer() as server:
        options = {"batch": True, "ask_above": None, "cache": tmp_path / "a"}
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            known = [row for number, row in enumerate(rows(count)) if number % 10]
            agent.map_sync("{{text}}", known, **options)
            options["into"] = tmp_path / "out"
            whole = agent.mapping("{{text}}", iter(rows(count)), output=None, options=options)
            done = asyncio.run(asyncio.wait_for(whole.wait(), PATIENCE))
    assert done.frame["row"].tolist() == list(range(count)) and not len(done.failed)
    assert (done.progress.kept, done.progress.asked) == (count * 9 // 10, count // 10)
    assert len(list((tmp_path / "out").iterdir())) == count // 10


def test_the_bytes_of_a_file_have_a_limit_too(tmp_path, monkeypatch):
    monkeypatch.setattr(packs, "MOST_BYTES", 2_000)
    with BatchServer() as server:
        done = mapped(server, 50, cache=tmp_path / "a")
        files = server.files()
    assert not len(done.failed)
    assert len(files) > 1 and max(len(each.encode()) for each in files) <= 2_000


@pytest.mark.parametrize("ends", ["expired", "cancelled", "completed"])
def test_what_was_not_answered_is_asked_by_the_next_call(tmp_path, ends):
    with BatchServer(ends=ends, share=0.5) as server:
        first = mapped(server, 100, cache=tmp_path / "a")
        assert len(first.failed) == 50
        (kind,) = first.progress.kinds()
        assert kind == ("status 400" if ends == "completed" else f"batch_{ends}")
        second = mapped(server, 100, cache=tmp_path / "a")
        tokens = sum(entry["tokens"] for entry in server.log())
    assert len(second.failed) == 25 and second.progress.kept == 50
    assert (first.progress.tokens + second.progress.tokens) == tokens == 75 * 30


def test_a_batch_that_the_provider_refuses_is_one_sentence(tmp_path):
    with (
        BatchServer(most_running=0) as server,
        pytest.raises(FatalError, match=r"did not take the batch.*Enqueued token limit"),
    ):
        mapped(server, 10, cache=tmp_path / "a")


def test_slips_of_the_api_and_a_lost_answer_pay_nothing_twice(tmp_path):
    with BatchServer(slips=3, lost=True) as server:
        done = mapped(server, 30, cache=tmp_path / "a")
        assert len(server.batches()) == 1 and len(server.log()) == 30
    assert not len(done.failed)


def test_a_wrong_key_is_not_repeated(tmp_path):
    with BatchServer(key="sk-another-one") as server, pytest.raises(FatalError) as caught:
        mapped(server, 10, cache=tmp_path / "a")
    assert KEY not in str(caught.value)


def test_a_stop_leaves_it_with_the_provider_and_the_next_call_takes_it_up(tmp_path):
    with BatchServer(stays="in_progress", key=KEY) as server:
        first = mapped(server, 60, cache=tmp_path / "a", stops_at="in_progress")
        assert first.frame["error"].str.contains("the provider goes on").all()
        (sent,) = Ledger(tmp_path / "a").all()
        assert (sent.rows, sent.state) == (60, "in_progress")
        server.release()
        second = mapped(server, 80, cache=tmp_path / "a")
        assert len(server.log()) == 80 and len(server.batches()) == 2
    assert not len(second.failed) and second.usage.input_tokens == 80 * 20
    assert not Ledger(tmp_path / "a").all()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if path.suffix in (".jsonl", ".results")]
    assert not [path for path in written if KEY.encode() in path.read_bytes()]


def test_another_prompt_does_not_wait_for_it(tmp_path):
    with BatchServer(stays="in_progress") as server:
        mapped(server, 10, cache=tmp_path / "a", stops_at="in_progress")
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            done = agent.map_sync("other {{text}}", rows(3), cache=tmp_path / "a")
    assert not len(done.failed)


def test_the_sample_is_asked_directly_and_the_rest_only_if_it_may_cost_that(tmp_path):
    with BatchServer() as server:
        done = mapped(server, 200, cache=tmp_path / "a", ask_above=1e-9)
        assert not server.batches()
        assert done.frame["answer"].notna().sum() == 50
        done = mapped(server, 200, cache=tmp_path / "a", ask_above=1.0)
        assert len(server.batches()) == 1 and len(server.log()) == 200
    assert not len(done.failed)


def test_a_budget_is_kept(tmp_path):
    with BatchServer() as server:
        done = mapped(server, 400, cache=tmp_path / "a", max_tokens=5_000)
        assert 4_000 < sum(entry["tokens"] for entry in server.log()) <= 5_000
    assert "max_tokens" in done.stopped


def long(*moments):
    """Mark the moments of a kill that are long to go through."""
    return [pytest.param(moment, marks=pytest.mark.long) for moment in moments]


MAP = """
import sys
from agent_magics import Agent
from agent_magics.rows.batches import job

job.FIRST_LOOK = 0.02
agent = Agent("gpt-4o-mini", base_url=sys.argv[1], api_key=sys.argv[3])
agent.map_sync("{{text}}", [f"row {number}" for number in range(60)], ask_above=None,
               cache=sys.argv[2], batch=True)
"""


@pytest.mark.parametrize("after", ["/v1/batches", *long("/v1/files", "in_progress", "completed")])
def test_a_killed_kernel_loses_no_batch(tmp_path, after):
    cache = tmp_path / "answers.sqlite"
    root = str(Path(__file__).parents[4])
    with BatchServer(stays="" if after == "completed" else "in_progress") as server:
        command = [sys.executable, "-c", MAP, server.base_url, str(cache), KEY]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root}) as killed:
            wait_until(lambda: killed.poll() is not None or _has_come(server, after))
            killed.send_signal(signal.SIGKILL)
        server.release()
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            done = agent.map_sync(
                "{{text}}",
                [f"row {number}" for number in range(60)],
                ask_above=None,
                cache=cache,
                batch=True,
            )
        asked = Counter(entry["last"] for entry in server.log())
    # One that goes on when its batch is completed may have ended by itself.
    assert killed.returncode in (-signal.SIGKILL, *([0] if after == "completed" else []))
    assert not len(done.failed)
    assert len(asked) == 60 and set(asked.values()) == {1}
    assert not files_beside(cache)


@pytest.mark.parametrize("call", ["create", *long("listed", "upload", "look", "follow", "content")])
def test_a_kernel_that_is_killed_in_the_midst_of_a_call_loses_no_batch(tmp_path, call):
    cache = tmp_path / "answers.sqlite"
    root = str(Path(__file__).parents[4])
    with BatchServer(breaks=call, broken="half") as server:
        command = [sys.executable, "-c", MAP, server.base_url, str(cache), KEY]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": root}) as killed:
            wait_until(lambda: killed.poll() is not None or server.halves())
            killed.send_signal(signal.SIGKILL)
        server.release()
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            given = [f"row {number}" for number in range(60)]
            done = agent.map_sync("{{text}}", given, ask_above=None, cache=cache, batch=True)
        asked = Counter(entry["last"] for entry in server.log())
    assert killed.returncode == -signal.SIGKILL
    assert list(done.frame["answer"]) == given
    assert asked == Counter(given)
    assert not files_beside(cache)


@pytest.mark.parametrize(
    "deaths", [3, pytest.param(30, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
def test_a_provider_that_is_killed_at_random_calls_is_paid_once(tmp_path, monkeypatch, deaths):
    monkeypatch.setattr(packs, "MOST_REQUESTS", 10)
    cache, count = tmp_path / "a", 0
    with DyingBatchServer(tmp_path / "kept", deaths) as server:
        while server.deaths() < deaths:
            count += 50
            with suppress(FatalError):  # it died at each of six tries
                mapped(server, count, cache=cache)
        done = mapped(server, count, cache=cache)
        asked = Counter(entry["last"] for entry in server.log())
        begun = len(server.batches())
    assert list(done.frame["answer"]) == [each[-40:] for each in rows(count)]
    assert asked == Counter(rows(count)) and begun * 10 == count
    assert not Ledger(cache).all() and not files_beside(cache)


def _has_come(server, after):
    if after == "/v1/files":
        return bool(server.files())
    states = [each["status"] for each in server.batches()]
    return bool(states) if after == "/v1/batches" else after in states


def files_beside(cache):
    return [path.name for path in Ledger(cache).folder().iterdir()]


def test_a_sample_leaves_out_what_a_batch_has(tmp_path):
    cache = tmp_path / "a"
    with BatchServer(stays="in_progress") as server:
        mapped(server, 100, cache=cache, stops_at="in_progress")
        server.release()
        done = mapped(server, 120, cache=cache, ask_above=1.0)
        asked = Counter(entry["last"] for entry in server.log())
    assert not len(done.failed)
    assert len(asked) == 120 and set(asked.values()) == {1}


def test_rows_that_a_batch_has_are_no_free_ones_of_the_quote(tmp_path):
    cache = tmp_path / "a"
    with BatchServer(stays="in_progress") as server:
        row = mapped(server, 1, cache=tmp_path / "b", batch=False).cost
        mapped(server, 100, cache=cache, stops_at="in_progress")
        done = mapped(server, 120, cache=cache, ask_above=row * 30)
    assert "120 rows will cost about" in done.stopped


@pytest.mark.parametrize("is_stream", [False, True], ids=["held", "stream"])
@pytest.mark.parametrize("kept", [0, 10, 199, 350, "the sample"], ids=str)
@pytest.mark.parametrize("batch", [False, True], ids=["plain", "batch"])
def test_whatever_is_kept_no_more_than_the_limit_is_spent_unasked(tmp_path, batch, kept, is_stream):
    """But for 50 rows, which tell what all will cost."""
    options = {"cache": tmp_path / "a", "batch": batch}
    given = rows(400)
    with BatchServer() as server:
        row = mapped(server, 1, cache=tmp_path / "b", batch=False).cost
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            if kept == "the sample":
                agent.map_sync("{{text}}", given, ask_above=0, **options)
            else:
                agent.map_sync("{{text}}", given[:kept], ask_above=None, **options)
            options["batch"], limit = True, row * 60
            source = iter(given) if is_stream else given
            done = agent.map_sync("{{text}}", source, ask_above=limit, into="out", **options)
    assert done.cost <= limit + row
    is_dear = not isinstance(kept, int) or (400 - kept) * row / 2 > limit
    assert ("above the" in done.stopped) == is_dear


def test_a_map_that_is_stopped_before_it_begins_waits_for_no_rows(tmp_path):
    gate, table = threading.Event(), pyarrow.table({"text": ["late"]})

    def source():
        gate.wait()
        yield from table.to_batches()

    class StopsAtOnce(Watcher):
        def begin(self, job):
            job.stop()

    options = {"batch": True, "cache": tmp_path / "a", "into": tmp_path / "out"}
    with (
        BatchServer() as server,
        Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent,
    ):
        reader = pyarrow.RecordBatchReader.from_batches(table.schema, source())
        mapping = agent.mapping("{{text}}", reader, options=options)
        try:
            done = asyncio.run(asyncio.wait_for(mapping.wait(StopsAtOnce()), PATIENCE))
        finally:
            gate.set()
    assert done.stopped == "you stopped it" and not len(done.frame)


def test_a_cheap_stream_is_one_batch(tmp_path):
    with BatchServer() as server:
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            done = agent.map_sync("{{text}}", iter(rows(200)), batch=True, cache="a", into="out")
        sizes = [each.count("\n") for each in server.files()]
    assert sizes == [150] and not done.stopped
    assert list(done.frame["answer"]) == [each[-40:] for each in rows(200)]


@pytest.mark.parametrize("says", ["approve", "deny"])
@pytest.mark.parametrize("most", [40, 50_000], ids=["batches", "batch"])
def test_a_dear_stream_is_asked_about_once_before_it_is_sent(tmp_path, monkeypatch, says, most):
    monkeypatch.setattr(packs, "MOST_REQUESTS", most)
    asked = []

    def answer(question):
        asked.append((str(question), sum(each.count("\n") for each in server.files())))
        return says

    with BatchServer() as server:
        row = mapped(server, 1, cache=tmp_path / "b", batch=False).cost
        options = {"ask_above": row * 80, "batch": True, "cache": "a", "into": "out"}
        with Agent(
            "gpt-4o-mini", base_url=server.base_url, api_key=KEY, on_question=answer
        ) as agent:
            done = agent.map_sync("{{text}}", iter(rows(400)), **options)
        sent = sum(each.count("\n") for each in server.files())
        count = len(server.batches())
    [(words, before)] = asked
    assert "the rows so far cost" in words and "how many follow is not known" in words
    assert before <= 60  # beside the sample of 50, at half its price
    if says == "deny":
        assert sent <= 40 and done.cost <= row * 80 and done.stopped
    else:
        assert sent == 350 and count == -(-350 // most) and not len(done.failed)


def test_what_is_kept_of_a_stream_is_there_where_it_breaks_within_the_sample(tmp_path):
    def broken():
        yield from rows(10)
        raise ValueError("no more")

    with BatchServer() as server:
        mapped(server, 10, cache=tmp_path / "a")
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            options = {"batch": True, "cache": tmp_path / "a", "into": "out"}
            done = agent.map_sync("{{text}}", broken(), **options)
    assert "could not be read further" in done.stopped and "no more" in done.stopped
    assert list(done.frame["answer"]) == [each[-40:] for each in rows(10)]


FAULTS = [
    (call, broken)
    for call in ("upload", "create", "look", "follow", "content")
    for broken in ("403", "404", "garbage")
    if (call, broken) != ("content", "garbage")  # that is a file without answers
]


@pytest.mark.parametrize(("call", "broken"), FAULTS)
def test_a_call_that_fails_ends_it_in_a_sentence_and_pays_nothing_twice(tmp_path, call, broken):
    cache = tmp_path / "a"
    with BatchServer(breaks=call, broken=broken) as server:
        try:
            first = mapped(server, 30, cache=cache)
        except FatalError:
            pass
        else:
            assert len(first.failed) == 30
        server.release()
        again = mapped(server, 30, cache=cache)
        assert len(server.log()) == 30 and len(server.batches()) == 1
    assert not len(again.failed)
    assert not files_beside(cache)


def test_files_that_cannot_be_written_end_it_in_a_sentence(tmp_path):
    (tmp_path / "a.batches").write_text("in the way")
    with BatchServer() as server, pytest.raises(FatalError, match=r"a\.batches cannot be used"):
        mapped(server, 30, cache=tmp_path / "a")


def gone_job(ledger, api):
    job = BatchJob.__new__(BatchJob)
    job._ledger, job._api, job._batches = ledger, api, {}
    return job


@pytest.mark.parametrize(
    ("hours", "batch_id", "is_gone"),
    [
        (1, "batch_9", False),
        (25, "batch_9", False),
        (9000, "batch_9", False),
        (-9000, "batch_9", False),
        (0, "", True),
        (0, "locked", False),
        (0, "without locks", False),
    ],
)
def test_what_the_provider_does_not_show_is_gone_only_where_nobody_can_have_it(
    tmp_path, monkeypatch, hours, batch_id, is_gone
):
    def refuses(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    is_packed = batch_id in ("locked", "without locks")
    ledger = Ledger(tmp_path / "a")
    named = "" if is_packed else batch_id
    sent = Sent("t" * 32, now() - hours * 3600, "", "", "", b"", named)

    async def ask(address):
        api = await open_api(Settings(base_url=address, api_key=KEY))
        try:
            return await gone_job(ledger, api)._is_gone(sent)
        finally:
            await api.close()

    pack = Pack(ledger.folder())
    if is_packed:
        sent = sent._replace(token=pack.token)
    if batch_id == "without locks":
        monkeypatch.setattr(fcntl, "flock", refuses)
    try:
        with BatchServer() as server:
            assert asyncio.run(ask(server.base_url)) == is_gone
    finally:
        pack.close()


def test_rows_of_a_batch_that_is_not_shown_are_not_sent_again_and_can_be_freed(tmp_path):
    cache = tmp_path / "a"
    with BatchServer(stays="in_progress") as server:
        mapped(server, 10, cache=cache, stops_at="in_progress")
        (sent,) = Ledger(cache).all()
        Ledger(cache).update(sent.token, "batch_7", "in_progress", 0)
        second = mapped(server, 10, cache=cache)
        assert second.frame["error"].str.contains("shows this key no batch batch_7").all()
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            assert "not at the provider" in MAPS.run(["resume", "--cache", str(cache)], None, agent)
            assert MAPS.run(["cancel", sent.token[:8], "--cache", str(cache)], None, agent) == NONE
        server.release()
        assert not len(mapped(server, 10, cache=cache).failed)


def test_a_new_batch_waits_for_that_of_an_earlier_call(tmp_path):
    cache = tmp_path / "a"

    def is_full(job):
        return any(batch.is_full for batch in list(job._batches.values()))

    with BatchServer(stays="in_progress", most_running=1) as server:
        mapped(server, 10, cache=cache, stops_at="in_progress")
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            options = {"batch": True, "ask_above": None, "cache": cache}
            mapping = agent.mapping("{{text}}", rows(20), output=None, options=options)
            done = mapping.wait_sync(When([is_full], lambda job: server.release()))
        assert len(server.log()) == 20
    assert not len(done.failed) and not Ledger(cache).all()


def test_fetched_results_stay_so_until_they_are_taken_in(tmp_path, monkeypatch):
    cache = tmp_path / "a"
    with BatchServer(stays="in_progress") as server:
        mapped(server, 10, cache=cache, stops_at="in_progress")
        server.release()
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            resume = ["resume", "--cache", str(cache)]
            while "its results are here" not in MAPS.run(resume, None, agent):
                pass

        async def fails(*_):
            raise FatalError("no more room")

        with monkeypatch.context() as broken:
            broken.setattr(BatchJob, "_receive_group", fails)
            failed = mapped(server, 10, cache=cache)
        assert failed.frame["error"].eq("no more room").all() and not failed.progress.in_flight
        assert [sent.state for sent in Ledger(cache).all()] == ["fetched"]
        assert not len(mapped(server, 10, cache=cache).failed)
        assert len(server.log()) == 10
    assert not files_beside(cache)


def test_rows_that_another_kernel_takes_in_meanwhile_have_their_answers(tmp_path, monkeypatch):
    cache, read, theirs = tmp_path / "a", BatchJob._read, []

    async def read_slowly(job, batches):
        await read(job, batches)
        monkeypatch.setattr(BatchJob, "_read", read)
        theirs.append(await asyncio.to_thread(mapped, server, 10, cache=cache))

    with BatchServer(stays="in_progress") as server:
        mapped(server, 10, cache=cache, stops_at="in_progress")
        server.release()
        monkeypatch.setattr(BatchJob, "_read", read_slowly)
        mine = mapped(server, 10, cache=cache)
        assert len(server.batches()) == 1
    assert not mine.stopped and mine.frame.equals(theirs[0].frame)
    assert list(mine.frame["answer"]) == [each[-40:] for each in rows(10)]


@pytest.mark.parametrize("by", ["map", "cancel"])
def test_a_batch_is_forgotten_whose_rows_were_answered_otherwise(tmp_path, by):
    cache = tmp_path / "a"
    with (
        BatchServer(stays="in_progress") as server,
        Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent,
    ):
        mapped(server, 10, cache=cache, stops_at="in_progress")
        (sent,) = Ledger(cache).all()
        server.release()
        resume = ["resume", "--cache", str(cache)]
        while "its results are here" not in MAPS.run(resume, None, agent):
            pass
        cancel = ["cancel", sent.token[:8], "--cache", str(cache)]
        assert "its results are here" in MAPS.run(cancel, None, agent)
        mapped(server, 10, cache=cache, batch=False)
        if by == "map":
            mapped(server, 10, cache=cache)
        else:
            assert MAPS.run(cancel, None, agent) == NONE
    assert not Ledger(cache).all() and not files_beside(cache)


def test_files_that_nobody_uses_are_swept(tmp_path):
    ledger = Ledger(tmp_path / "a")
    pack = Pack(ledger.folder())
    for name in ("x.jsonl", "x.0.results", "x.0.y.part"):
        (ledger.folder() / name).touch()
    for path in ledger.folder().iterdir():
        os.utime(path, (0, 0))
    (ledger.folder() / "new.jsonl").touch()
    ledger.sweep()
    assert sorted(files_beside(tmp_path / "a")) == sorted([pack.path.name, "new.jsonl"])
    pack.close()


class FullApi:
    """A batch API at which as much waits as may."""

    async def upload(self, path):
        return "file"

    async def create(self, file_id, token):
        return Batch("mine", "failed", is_full=True)


def test_a_batch_that_waits_for_another_one_waits_no_more_when_the_map_is_cancelled():
    async def run():
        plan = SimpleNamespace(
            source=SimpleNamespace(count=1), at_once=1, ahead=0, digest=b"", ask_above=None
        )
        job = BatchJob(plan, None, None, None, None)
        job.connect(FullApi(), SimpleNamespace(update=lambda *_: None))
        job._batches["another"] = Batch("theirs", "in_progress")
        waiting = asyncio.create_task(job._begin(SimpleNamespace(path=None, token="mine")))
        while not job._ended_one._waiters:  # noqa: ASYNC110 - nobody tells of it
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await asyncio.sleep(0)  # in which what was cancelled ends
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()
