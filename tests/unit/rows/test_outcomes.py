"""What becomes of rows, in Parquet files of some rows each."""

import asyncio
import os
import shutil
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path

import fsspec
import polars
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows import mapping
from agent_magics.rows.outcomes import Outcome, Parts
from agent_magics.rows.tables.columns import AnswerColumns
from agent_magics.rows.tables.folders import HELD
from tests.support.rows.echo import Echo
from tests.support.rows.watchers import When

TEXT = AnswerColumns(None)


def written(folder, answers, stopped=""):
    """Write answers by the position of their row, ten rows a part; return the table of them."""

    async def write():
        parts = Parts(folder, TEXT, b"the same map", span=10)
        for position, answer in answers.items():
            outcome = Outcome(b'"%s"' % answer.encode()) if answer else Outcome(None, "refused")
            parts.put(position, outcome)
        parts.stopped = stopped
        await parts.close()
        return parts.frame("pyarrow")

    return asyncio.run(write())


def found(folder):
    return pyarrow.parquet.read_table(folder)["answer"].to_pylist()


def kept(place):
    """Return row and answer of all that stands in a folder, and in what was set aside of it."""
    system, folder = fsspec.url_to_fs(str(place))
    kept = set()
    there = [each for each in (folder, f"{folder}.earlier") if system.exists(each)]
    for path in chain.from_iterable(system.ls(each, detail=False) for each in there):
        table = pyarrow.parquet.read_table(path, filesystem=system, partitioning=None)
        table = table.filter(table["error"].is_null())
        kept |= set(zip(table["row"].to_pylist(), table["answer"].to_pylist(), strict=True))
    return kept


CALLS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 34), st.sampled_from(["", "a", "b"]), max_size=20),
        st.sampled_from(["", "you stopped it"]),
    ),
    max_size=5,
)


@pytest.mark.parametrize("place", ["{folder}/out", "memory://{folder}"])
@settings(max_examples=25)  # each writes and reads up to 20 files
@given(calls=CALLS)
def test_no_answer_is_lost_by_later_calls(place, calls, tmp_path_factory):
    """Whatever rows they have and whether they end whole; "" stands for an error."""
    place, answers = place.format(folder=tmp_path_factory.mktemp("a")), set()
    for rows, stopped in calls:
        written(place, rows, stopped)
        told = {(row, answer) for row, answer in rows.items() if answer}
        if not stopped:
            answers |= told
        assert answers <= kept(place)


def test_what_a_smaller_call_does_not_have_is_set_aside_and_told(tmp_path):
    with Agent(Echo()) as agent:
        agent.map_sync("{{text}}", ["a", "b", "c"], into=tmp_path / "out")
        again = agent.map_sync("{{text}}", ["a", "b", "c"], into=tmp_path / "out").report()
        trial = agent.map_sync("{{text}}", ["c"], into=tmp_path / "out")
    assert found(tmp_path / "out") == list(trial.frame["answer"]) == ["c"]
    assert polars.read_parquet(tmp_path / "out")["answer"].to_list() == ["c"]
    (aside,) = tmp_path.glob("out.earlier/part-00000.*.parquet")
    assert pyarrow.parquet.read_table(aside)["answer"].to_pylist() == ["a", "b", "c"]
    assert str(aside) in trial.report() and "earlier call" not in again


def test_relative_names_are_those_of_the_folder_in_which_the_map_was_called(tmp_path, monkeypatch):
    """Also where the process has gone elsewhere since, as `%cd` beside a map in the background."""
    monkeypatch.chdir(tmp_path)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    for name in "ab":
        Path(f"{name}.jsonl").write_text(f'"{name}"')

    def goes(row):
        os.chdir(elsewhere)
        return row["text"]

    with Agent(Echo()) as agent:
        done = agent.map_sync(goes, "*.jsonl", into="out")
    assert list(done.frame["answer"]) == found(tmp_path / "out") == ["a", "b"]
    assert not done.stopped and not list(elsewhere.iterdir())


def test_answers_that_were_deleted_are_told_in_a_sentence(tmp_path):
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", ["a"], into=tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(FatalError, match=r"out: the answers cannot be read \(No such file"):
        _ = done.frame


@pytest.mark.parametrize("ends", ["whole", "stopped", "failed"])
def test_two_maps_do_not_write_into_one_folder_at_once(tmp_path, ends):
    """The second one is refused before it asks; however the first one ends, it is free again."""
    release, refused, model = asyncio.Event(), [], Echo()

    class Waits(Echo):
        async def stream(self, request):
            async for event in super().stream(request):
                await release.wait()
                yield event

    def meanwhile(job):
        with Agent(model) as other, pytest.raises(FatalError) as caught:
            other.map_sync("{{text}}", ["x"], into=tmp_path)
        refused.append(str(caught.value))
        if ends == "stopped":
            agent.session.engine.post(job.stop)
        if ends == "failed":
            tmp_path.joinpath("part-00000.parquet").mkdir()
        agent.session.engine.post(release.set)

    with Agent(Waits()) as agent:
        mapping = agent.mapping("{{text}}", ["a"], options={"into": tmp_path})
        with pytest.raises(FatalError) if ends == "failed" else nullcontext():
            mapping.wait_sync(When([lambda job: job.progress.in_flight], meanwhile))
        assert refused == [HELD.format(place=str(tmp_path))] and not model.asked
    if ends == "failed":
        tmp_path.joinpath("part-00000.parquet").rmdir()
    with Agent(model) as agent:
        agent.map_sync("{{text}}", ["x"], into=tmp_path)
    assert found(tmp_path) == ["x"]
    names = [path.name for path in tmp_path.iterdir() if not path.name.startswith("_")]
    assert names == ["part-00000.parquet"]


def test_a_call_that_ends_early_replaces_no_part_with_more_answers(tmp_path):
    first = {number: f"first {number}" for number in range(35)}
    assert written(tmp_path, first).num_rows == 35
    second = {number: f"second {number}" for number in (29, 3, *range(10, 20), 33)}
    frame = written(tmp_path, second, "you stopped it")
    assert frame["row"].to_pylist() == sorted(second)
    assert frame["answer"].to_pylist() == [second[number] for number in sorted(second)]
    kept = {number: second[number] for number in range(10, 20)}
    assert found(tmp_path) == list({**first, **kept}.values())


def test_a_call_that_ends_early_replaces_no_part_with_rows_that_it_leaves_unasked(
    tmp_path, monkeypatch
):
    """They were read before the end, and make a part full."""
    monkeypatch.setattr(mapping, "Parts", partial(Parts, span=3))
    with Agent(Echo()) as agent:
        agent.map_sync("{{text}}", ["a", "b", "c"], into=tmp_path)
        done = agent.map_sync("{{text}}", ["a", "d", "e"], into=tmp_path, max_tokens=1)
    assert done.stopped and list(done.frame["answer"].dropna()) == ["a"]
    assert found(tmp_path) == ["a", "b", "c"]


def test_a_call_that_ends_early_replaces_parts_with_fewer_answers(tmp_path):
    written(tmp_path, {3: "first", 12: "first"}, "you stopped it")
    frame = written(tmp_path, {1: "second", 3: "second"}, "you stopped it")
    assert frame["row"].to_pylist() == [1, 3]
    assert found(tmp_path) == ["second", "second", "first"]


@pytest.mark.parametrize("before", [0, 3, 35])
@pytest.mark.parametrize("count", [1, 3, 10, 12, 35])
def test_a_call_that_ends_whole_leaves_its_own_rows_alone(tmp_path, before, count):
    written(tmp_path, dict.fromkeys(range(before), "first"))
    frame = written(tmp_path, dict.fromkeys(range(count), "second"))
    assert frame["answer"].to_pylist() == found(tmp_path) == ["second"] * count


@pytest.mark.parametrize("stopped", ["", "you stopped it"])
def test_a_call_without_rows_leaves_an_earlier_calls_parts(tmp_path, stopped):
    """A filter that finds nothing deletes no answers that were paid for."""
    written(tmp_path, dict.fromkeys(range(35), "first"))
    assert written(tmp_path, {}, stopped).num_rows == 0
    assert found(tmp_path) == ["first"] * 35
