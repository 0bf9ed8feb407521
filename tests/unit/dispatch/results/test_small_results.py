"""The quick way for little data of Python's own types says what the long way says."""

from collections import OrderedDict, UserString

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.results.outline import can_be_written, is_small, may_run_code
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
