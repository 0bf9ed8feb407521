"""A map over the partitions of a Dask frame, which stay with the workers that hold them."""

import asyncio
import datetime
import json
import os
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import dask
import dask.dataframe as dd
import pandas as pd
import pytest

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.engines.partition_answers import SPAN, CollectedPartitions, PartitionFiles
from agent_magics.rows.engines.partitions import Partitions
from agent_magics.rows.outcomes import Outcome
from agent_magics.rows.tables.columns import AnswerColumns
from tests.support.models.row_server import RowServer
from tests.support.rows.clusters import cluster, mortal_workers
from tests.support.rows.watchers import When, wait_until
from tests.support.turns import PATIENCE

MODEL = "gpt-4o-mini"
PARTS = 6
pytestmark = pytest.mark.soak


@dataclass
class Said:
    text: str
    long: bool


def agent_for(server):
    return Agent(base_url=server.base_url, api_key="x", model=MODEL)


def table(count=300):
    """Rows with an index of their own, of which two are equal and one has no text."""
    texts = [*(f"row {number}" for number in range(count - 2)), "row 0", None]
    return pd.DataFrame({"text": texts}, index=pd.RangeIndex(7, 7 + 3 * count, 3, name="id"))


def frame_of(count=300):
    return dd.from_pandas(table(count), npartitions=PARTS)


def mapped(agent, frame, client, prompt="{{text}}", **options):
    return agent.map_sync(prompt, frame, engine=client, ask_above=None, **options)


def test_the_answers_are_a_frame_of_the_same_partitions(client):
    frame = frame_of().persist()
    with RowServer() as server, agent_for(server) as agent:
        done = mapped(agent, frame, client)
        again = mapped(agent, frame_of(), client)
        asked = server.prompts()
    assert set(asked.values()) == {1} and len(asked) == 298
    assert isinstance(done.frame, dd.DataFrame)
    assert done.frame.divisions == frame.divisions
    there = done.frame.compute()
    assert list(there.index) == list(table().index)
    assert list(there["answer"][:-1]) == list(table()["text"][:-1])
    assert "text is missing" in there["error"].iloc[-1] and there["error"].notna().sum() == 1
    assert dict(there.dtypes) == dict(done.frame.dtypes)
    assert len(done.failed) == 1
    assert done.progress.cost == pytest.approx(there["cost"].sum())
    assert again.progress.kept == 298 and not again.progress.asked
    pd.testing.assert_series_equal(again.frame["answer"].compute(), there["answer"])
    with pytest.raises(FatalError, match="rows of a Dask frame are not in memory"):
        done.retry()


@pytest.mark.parametrize("name", ["text", None])
@pytest.mark.parametrize("into", [False, True], ids=["memory", "into"])
def test_a_series_is_a_frame_of_one_column(client, name, into, tmp_path):
    series = frame_of(20)["text"].rename(name).persist()
    options = {"into": tmp_path / "year=2024"} if into else {}
    with RowServer() as server, agent_for(server) as agent:
        done = mapped(agent, series, client, "{{text}}", **options)
    there = done.frame.compute()
    assert list(there["answer"][:-1]) == list(table(20)["text"][:-1])
    if into:
        assert list(there.columns) == ["row", "answer", "error", "tokens", "cost"]
    else:
        assert list(there.index) == list(table(20).index)


def test_rows_are_read_and_asked_where_they_lie(client):
    frame = frame_of().persist()
    pids = client.run(os.getpid)
    with RowServer() as server, agent_for(server) as agent:
        mapped(agent, frame, client, lambda row: f"{os.getpid()} {row['text']}")
        asked = server.prompts()
    expected = set()
    for future in client.futures_of(frame):
        (holder,) = client.who_has(future)[future.key]
        expected |= {f"{pids[holder]} {text}" for text in future.result()["text"]}
    assert len({prompt.split()[0] for prompt in asked}) == 2
    assert set(asked) == expected


def test_what_is_made_of_a_persisted_frame_is_asked_and_not_that_frame(client):
    frame = frame_of().persist()
    kept = frame[frame["text"].str.endswith("7", na=False)]
    with RowServer() as server, agent_for(server) as agent:
        done = mapped(agent, kept, client)
        asked = server.prompts()
    expected = [text for text in table()["text"].dropna() if text.endswith("7")]
    assert list(done.frame.compute()["answer"]) == expected
    assert set(asked) == set(expected)


def test_answers_that_do_not_fit_are_asked_for_again(client):
    with RowServer(faults={"schema": 0.4}) as server, agent_for(server) as agent:
        done = mapped(agent, frame_of(60), client, output=Said)
        there = done.frame.compute()
        assert len(server.log()) > 58
    errors = there["error"].dropna()
    assert 0 < there["text"].notna().sum() == 60 - len(errors)
    assert set(done.progress.errors) <= {"bad row", "does not fit"}
    assert str(there["long"].dtype) == "boolean"
    # Of two equal rows the one that was read first shows what both took; what does not fit is not
    # kept, so then the other one may be asked about again.
    failed = pd.notna(there["error"].iloc[0]) or pd.notna(there["error"].iloc[-2])
    assert (there["tokens"] > 0).sum() in ((58, 59) if failed else (58,))


def test_parts_are_written_by_partition(client, tmp_path):
    frame = frame_of()
    frame = frame[~frame["text"].isin([f"row {n}" for n in range(50)])]  # the first has no rows
    with RowServer() as server, agent_for(server) as agent:
        done = mapped(agent, frame, client, into=tmp_path / "out")
        with pytest.raises(FatalError, match="of another map"):
            mapped(agent, table(), client, into=tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"part-{number:05}.parquet" for number in range(PARTS)]
    assert done.frame.npartitions == PARTS
    there = done.frame.compute()
    assert list(there["answer"][:-1]) == list(table()["text"][50:298])
    lengths = list(frame.map_partitions(len).compute())
    assert lengths[0] == 0 and list(there["row"]) == [n for each in lengths for n in range(each)]


# Type, an answer of it, and what a frame has for it.
VALUES = [
    (int, "3", 3),
    (bool, "true", True),
    (float, "0.5", 0.5),
    (str, "word", "word"),
    (datetime.date, '"9999-12-31"', pd.Timestamp("9999-12-31")),
    (datetime.datetime, '"2024-02-29T01:02:03"', pd.Timestamp("2024-02-29 01:02:03")),
    (list[str], '["a", "ü"]', ["a", "ü"]),
    (list[int], "[1, 2]", [1, 2]),
    (list[datetime.date], '["2024-02-29"]', ["2024-02-29"]),
    (list[bool], "[]", []),
    (dict[str, int], '{"a": 1}', '{"a": 1}'),
]


@pytest.mark.parametrize("into", [False, True], ids=["memory", "into"])
@pytest.mark.parametrize(("kind", "answer", "value"), VALUES, ids=lambda each: str(each)[:30])
def test_values_keep_their_types_in_a_frame_and_all_partitions_have_the_same(
    kind, answer, value, into, tmp_path
):
    columns = AnswerColumns(kind)

    async def collect():
        sink = CollectedPartitions(columns, Partitions(rows, engine))
        if into:
            sink = PartitionFiles(tmp_path, columns, b"a map")
        for number in range(3):
            sink.expect(number, 1)
        sink.put(0, Outcome(columns.read(answer)))
        sink.put(SPAN, Outcome(None, "no"))
        sink.put(2 * SPAN, Outcome(columns.read(answer)))
        await sink.close()
        return sink.frame()

    rows = dd.from_pandas(table(3), npartitions=3)
    engine = SimpleNamespace(client=SimpleNamespace(asynchronous=True), name="")
    with dask.config.set(scheduler="synchronous"):
        frame = asyncio.run(collect())
        parts = [frame.partitions[number].compute() for number in range(3)]
        failed = frame[~frame["error"].isna()].compute()
    assert all(dict(part.dtypes) == dict(frame.dtypes) for part in parts)
    first, missing, last = (part["answer"].to_list()[0] for part in parts)
    assert first == last == value and pd.isna(missing)
    assert failed["error"].to_list() == ["no"]


def test_files_of_no_partition_are_a_frame_without_rows(tmp_path):
    frame = PartitionFiles(tmp_path, AnswerColumns(Said), b"a map").frame()
    assert list(frame.columns) == ["row", "text", "long", "error", "tokens", "cost"]
    assert not len(frame)


def test_a_call_that_ends_early_has_no_answers_of_an_earlier_one(tmp_path):
    async def call(word, numbers, stopped):
        files = PartitionFiles(tmp_path, AnswerColumns(None), b"the same map")
        for number in numbers:
            files.expect(number, 1)
            files.put(number * SPAN, Outcome(json.dumps(word).encode()))
        await asyncio.sleep(0)  # they are written from now on
        files.stopped = stopped
        await files.close()
        return list(files.frame().compute(scheduler="synchronous")["answer"])

    assert asyncio.run(call("Monday", range(4), "")) == ["Monday"] * 4
    # Partitions are not read in order.
    assert asyncio.run(call("Tuesday", (0, 3), "you stopped it")) == ["Tuesday"] * 2


def test_what_cannot_be_read_is_one_sentence(client):
    def part(number):
        raise OSError("disk on fire")

    frame = dd.from_map(part, range(1), meta=table(2))
    said = "^Partition 0 of the frame cannot be read: OSError: disk on fire.$"
    with RowServer() as server, agent_for(server) as agent, pytest.raises(FatalError, match=said):
        mapped(agent, frame, client)


def test_stop_leaves_the_rest_unasked(client, monkeypatch):
    monkeypatch.setattr("agent_magics.rows.job.GRACE", PATIENCE)

    def stop(job):
        agent.session.engine.post(job.stop)
        server.answer_more()

    with RowServer(holds=50) as server, agent_for(server) as agent:
        options = {"engine": client, "ask_above": None, "concurrency": 10}
        mapping = agent.mapping("{{text}}", frame_of(3000), output=None, options=options)
        done = mapping.wait_sync(When([50], stop))
        there = done.frame.compute()
    assert len(there) == 3000 and 50 <= there["answer"].notna().sum() <= 50 + 2 * 10
    assert set(there["error"].dropna()) == {"not asked: you stopped it"}
    wait_until(lambda: not any(client.processing().values()))


def test_no_row_is_lost_with_the_worker_that_holds_it():
    kills, at_once, part, killed = 2, 16, 100, []

    def kill(job):
        """Kill a worker that asks; the server answers nothing more until it is gone."""
        wait_until(lambda: any(worker.held for worker in job.asker._workers))
        before = list(job.asker._workers)
        kill_worker()
        wait_until(lambda: job.asker._workers != before)
        killed.append(1)
        server.answer_more(part + at_once if len(killed) < kills else 2000)

    with (
        cluster(0) as client,
        mortal_workers(client) as kill_worker,
        RowServer(holds=part) as server,
        agent_for(server) as agent,
    ):
        options = {"engine": client, "ask_above": None, "concurrency": at_once}
        # Each partition holds what no other one does, and can be made again.
        frame = dd.from_map(numbered, range(8), meta=numbered(0))
        mapping = agent.mapping("{{text}}", frame, output=None, options=options)
        done = mapping.wait_sync(When([part * (n + 1) for n in range(kills)], kill))
        asked = server.prompts()
        there = done.frame.compute()
    assert list(there["answer"]) == [f"row {number}" for number in range(400)]
    assert len(killed) == kills
    assert sum(times - 1 for times in asked.values()) <= kills * at_once


def test_what_was_read_and_lost_with_its_worker_is_read_again(monkeypatch):
    killed, result = [], Partitions._result

    def lose(self, reading):
        if not killed:
            kill_worker()  # the only one that can have it
            killed.append(1)
        return result(self, reading)

    monkeypatch.setattr(Partitions, "_result", lose)
    with (
        cluster(0) as client,
        mortal_workers(client, 1) as kill_worker,
        RowServer() as server,
        agent_for(server) as agent,
    ):
        frame = dd.from_map(numbered, range(2), meta=numbered(0))
        done = mapped(agent, frame, client)
        assert not done.stopped and killed
        assert done.frame.compute()["answer"].notna().sum() == 100


def numbered(part):
    """Return a partition of fifty rows."""
    return pd.DataFrame({"text": [f"row {50 * part + row}" for row in range(50)]})


def test_a_partition_that_is_other_when_read_again_ends_the_map(client):
    """Its rows were paid by what they asked; others would get their answers."""

    def part(number):
        return pd.DataFrame({"text": [f"{os.urandom(4).hex()} {n}" for n in range(50)]})

    def cut(job):
        reader = next(each for each in job.asker._workers if each.own)  # the other may have none
        agent.session.engine.post(reader.link.close)
        wait_until(lambda: job.stopped)
        server.answer_more()

    with RowServer(holds=1) as server, agent_for(server) as agent:
        options = {"engine": client, "ask_above": None, "concurrency": 8}
        frame = dd.from_map(part, range(4), meta=part(0))
        mapping = agent.mapping("{{text}}", frame, output=None, options=options)
        done = mapping.wait_sync(When([1], cut))
    assert "has other rows now" in done.stopped


def test_a_partition_that_is_not_waited_for_any_more_leaves_no_task():
    asked, may_answer = threading.Event(), threading.Event()

    def gather(*_, **__):
        asked.set()
        may_answer.wait(PATIENCE)

    async def run():
        engine = SimpleNamespace(client=SimpleNamespace(gather=gather), addresses=lambda: {"w"})
        reading = asyncio.create_task(Partitions(None, engine)._result_of(None, "{error}", "w"))
        await asyncio.to_thread(asked.wait, PATIENCE)
        reading.cancel()
        await asyncio.wait({reading})
        await asyncio.sleep(0)  # in which what was cancelled ends
        left = asyncio.all_tasks() - {asyncio.current_task()}
        may_answer.set()
        return left

    assert asyncio.run(run()) == set()
