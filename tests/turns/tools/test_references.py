"""Values that stay where they are: from one tool's result to another's argument, by name."""

import json
from typing import Any

import numpy as np
import pytest

from agent_magics import Call, tool
from agent_magics.protocol.items import InputImage
from agent_magics.protocol.tools import ToolOutput
from tests.support.turns import outputs, scripted

seen: list[Any] = []


@tool(mutating=False)
def make(size: int) -> np.ndarray:
    """Make numbers."""
    array = np.zeros(size)
    seen.append(array)
    return array


@tool(mutating=False)
def take(array: np.ndarray, times: int = 1) -> int:
    """Take them."""
    seen.append(array)
    return len(array) * times


@tool(mutating=False)
def rows(count: int) -> list[dict[str, int]]:
    """Give rows."""
    found = [{"row": number} for number in range(count)]
    seen.append(found)
    return found


@tool(mutating=False)
def count(found: list[dict[str, int]]) -> int:
    """Count them."""
    seen.append(found)
    return len(found)


@tool(mutating=False)
def text(length: int) -> str:
    """Give text."""
    return "word\n" * length


@tool(mutating=False)
def figure() -> tuple[str, InputImage]:
    """Give a picture."""
    return "below", InputImage("data:image/png;base64,AAAA")


TOOLS = (make, take, rows, count, text, figure, "read_file")


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def run(*calls: Call) -> list[Any]:
    """Run a turn with these calls, one after the other; return their outputs."""
    with scripted(*calls, "Done.", tools=TOOLS) as agent:
        result = agent.run_sync("Go.")
        assert result.status == "completed", result.error
        return [output for _, output in outputs(agent)]


def test_the_object_itself_arrives_however_large_it_is():
    told = run(
        Call("make", {"size": 50_000_000}),
        Call("take", {"array": "@r1", "times": 2}),
        Call("take", {"array": "@r1"}),
    )
    assert told[0].startswith("ndarray, shape (50000000,), dtype float64\n")
    assert told[0].endswith("[@r1: numpy.ndarray, shape (50000000,), float64, 400 MB; "
                            "it stands for this object in arguments]")  # fmt: skip
    assert told[1:] == ["100000000", "50000000"]
    assert seen[0] is seen[1] is seen[2]


def test_a_list_that_was_cut_is_passed_on_whole_and_read_as_a_file():
    told = run(
        Call("rows", {"count": 2_000}),
        Call("count", {"found": "@r1"}),
        Call("read_file", {"path": "@r1", "start_line": 5, "max_lines": 2}),
    )
    assert "[@r1: list, 2,000 elements" in told[0]
    assert told[1] == "2000"
    assert seen[0] is seen[1]
    assert '"row": 0' not in told[2]
    assert '"row": 1' in told[2]


def test_a_text_that_was_cut_is_read_on():
    told = run(Call("text", {"length": 5_000}), Call("read_file", {"path": "@r1", "start_line": 9}))
    assert "the whole text, 25,000 characters" in told[0]
    assert "   9| word" in told[1]


def test_what_is_read_whole_gets_no_name():
    told = run(
        Call("rows", {"count": 2}),
        Call("take", {"array": [1, 2]}),
        Call("text", {"length": 1}),
        Call("figure", {}),
    )
    assert told[0] == '[{"row":0},{"row":1}]'
    assert (
        told[1]
        == "array: expected a handle of a kept numpy.ndarray, such as @r7, got [1, 2] (array)"
    )
    assert told[2] == "word\n"
    assert "@r" not in json.dumps([str(part) for part in told[3]])


def test_an_object_of_another_type_is_refused_in_a_sentence():
    told = run(Call("rows", {"count": 2_000}), Call("take", {"array": "@r1"}))
    assert told[1].startswith(
        "array: expected a handle of a kept numpy.ndarray, such as @r7, got @r1, a list, 2,000 "
    )
    assert len(seen) == 1


def test_what_is_let_go_is_told():
    told = run(
        Call("make", {"size": 20_000_000}),
        Call("make", {"size": 20_000_000}),
        Call("take", {"array": "@r1"}),
    )
    assert "[To keep within memory, @r1 is kept no longer; what a variable holds" in told[1]
    assert told[2] == "20000000", "`seen` holds it"


def test_a_call_by_hand_has_the_value():
    with scripted("Done.", tools=TOOLS) as agent:
        output: ToolOutput = agent.call_sync("make", {"size": 3})
        assert "@r1" in output.text
        assert agent.call_sync("take", {"array": "@r1"}).text == "3"
