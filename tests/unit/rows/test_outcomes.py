"""What becomes of rows, in Parquet files of some rows each."""

import asyncio
from functools import partial

import pyarrow.parquet
import pytest

from agent_magics import Agent
from agent_magics.rows import mapping
from agent_magics.rows.outcomes import Outcome, Parts
from agent_magics.rows.tables.columns import AnswerColumns
from tests.support.rows.echo import Echo

TEXT = AnswerColumns(None)


def written(folder, answers, stopped=""):
    """Write answers by the position of their row, ten rows a part; return the table of them."""

    async def write():
        parts = Parts(folder, TEXT, b"the same map", span=10)
        for position, answer in answers.items():
            parts.put(position, Outcome(b'"%s"' % answer.encode()))
        parts.stopped = stopped
        await parts.close()
        return parts.frame("pyarrow")

    return asyncio.run(write())


def found(folder):
    return pyarrow.parquet.read_table(folder)["answer"].to_pylist()


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
