"""A piece that JSON cannot hold costs nothing else: what is around it is written as without it."""

import json
from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from agent_magics.dispatch.results.json_text import encoded_text, json_text, whole_text
from agent_magics.dispatch.results.output import is_cut, to_tool_output


class Raising:
    def __repr__(self):
        raise ValueError("no")


class Ordered(dict[str, Any]):
    pass


@dataclass(slots=True)
class Row:
    a: Any


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    a: Any


Pair = namedtuple("Pair", "a b")
PLAIN = st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.sampled_from([pd.Timestamp(0)])
MISSING = st.just(pd.NaT)


def around(pieces: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return values of all containers that JSON can hold with the pieces in them."""
    return st.recursive(
        pieces,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.text(max_size=3), inner, max_size=3),
            st.dictionaries(st.text(max_size=3), inner, max_size=3).map(Ordered),
            st.tuples(inner, inner),
            st.builds(Pair, inner, inner),
            st.builds(Row, inner),
            st.builds(Model, a=inner),
        ),
        max_leaves=8,
    )


def with_none(value: Any) -> Any:
    """Return a value with None in the place of each NaT."""
    if isinstance(value, dict):
        return {key: with_none(each) for key, each in value.items()}
    if isinstance(value, Row | Model):
        return {"a": with_none(value.a)}
    if isinstance(value, list | tuple):
        return [with_none(each) for each in value]
    return None if value is pd.NaT else value


@given(around(PLAIN | MISSING).filter(lambda value: not isinstance(value, str)))
def test_a_missing_time_is_null_wherever_it_stands(value):
    assert json_text(value) == encoded_text(value) == json_text(with_none(value))
    assert json.loads(whole_text(value)) == json.loads(whole_text(with_none(value)))


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        (Raising(), "<tests.Raising, whose repr raised ValueError>"),
        ("\ud800", "'\\ud800'"),
        (b"\xff", "_w=="),
        (pd.NaT, None),
        (UserDict(), "{}"),
    ],
)
def test_a_piece_that_cannot_be_written_costs_no_other(piece, text):
    value = [{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "t": pd.NaT, "piece": piece}]
    shown = [{**value[0], "t": None, "piece": text}]
    output = to_tool_output(value, 10_000)
    assert (json.loads(output.text), is_cut(output)) == (shown, False)
    assert json.loads(whole_text(value)) == shown


def test_a_missing_time_may_be_a_key():
    assert json_text({pd.NaT: 1, "a": 2}) == '{"NaT":1,"a":2}'


def test_a_value_in_itself_is_outlined():
    value: list[Any] = [pd.NaT]
    value.append(value)
    assert "itself" in json_text(value)
    assert whole_text(value) == "[NaT, [...]]"
