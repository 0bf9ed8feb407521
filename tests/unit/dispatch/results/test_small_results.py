"""The quick way for little data of Python's own types says what the long way says."""

import json
import time
from collections import OrderedDict, UserString

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.results.json_text import encoded_text
from agent_magics.dispatch.results.outline import (
    MOST_CHARACTERS,
    can_be_written,
    has_more_parts,
    is_small,
    may_run_code,
    outline,
)
from agent_magics.dispatch.results.output import small_output, to_tool_output

DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
)


@given(DATA)
def test_what_is_small_reads_as_it_does_the_long_way(value):
    assert is_small(value) <= (can_be_written(value) and not may_run_code(value))
    quick = small_output(value, 10_000)
    assert quick is None or quick == to_tool_output(value, 10_000)


@given(DATA, st.integers(1, 20))
def test_what_has_more_parts_than_characters_allowed_is_longer_as_json(value, most):
    assert has_more_parts(value, most) <= (len(json.dumps(value, default=str)) > most)


@pytest.mark.parametrize("budget", [100, 1_600, 10_000])
@pytest.mark.parametrize(
    "value", [[0] * 3_000, dict.fromkeys(range(2_000), "x"), [[[1] * 40] * 40]], ids=["1", "2", "3"]
)
def test_what_is_too_long_is_outlined_without_writing_all_of_it(value, budget):
    most = min(budget, MOST_CHARACTERS)
    assert to_tool_output(value, budget).text == outline(value, most)
    assert len(outline(value, most)) <= most < len(encoded_text(value))


def test_rows_of_a_long_list_cost_no_more_than_their_outline():
    def seconds(act) -> float:
        def once() -> float:
            began = time.process_time()
            act()
            return time.process_time() - began

        return min(once() for _ in range(20))

    rows = [{"id": number, "name": "x"} for number in range(3_000)]
    assert seconds(lambda: to_tool_output(rows, 10_000)) < 3 * seconds(lambda: outline(rows))


def endless():
    value = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        endless(), [0] * 400, {n: n for n in range(400)}, "x" * 4_000, 1 << 2_000, {1, 2},
        OrderedDict(a=1), [OrderedDict()], UserString("x"), object(), iter([]), b"x",
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_large_or_not_pythons_own_goes_the_long_way(value):
    assert not is_small(value)
    assert small_output(value, 10_000) is None


def test_what_does_not_fit_goes_the_long_way():
    assert small_output(["word"] * 50, 100) is None
