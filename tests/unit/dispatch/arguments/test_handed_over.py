"""A tool gets the same whether a list or object is written inline or handed over as ``@r1``."""

import json
import math
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.dispatch.results.stored import HandleStore
from agent_magics.protocol.errors import RespondToModel


class Level(Enum):
    LOW = "low"


@dataclass
class Point:
    x: float
    y: int = 1


class Row(BaseModel):
    day: date
    label: str = ""


class Pair(NamedTuple):
    a: int
    b: str


class Named(TypedDict):
    x: float


NUMBERS = st.sampled_from([0, 1, 2.0, 2.5, "5", True])
TEXTS = st.sampled_from(["a", "low", "", 1, 2.5])
DAYS = st.sampled_from(["2024-01-01", "2024-02-29", 0])
# Types, and what a model may write for each of them.
KINDS: dict[Any, st.SearchStrategy[Any]] = {
    float: NUMBERS,
    int: st.sampled_from([0, 2.0, "5", True]),
    str: TEXTS,
    int | str: TEXTS,
    Any: NUMBERS | TEXTS,
    date: DAYS,
    Path: st.just("a/b"),
    Decimal: st.sampled_from([1, 2.5, "1.50"]),
    timedelta: st.sampled_from(["P1D", 5]),
    Level: st.just("low"),
    Literal["low"]: st.just("low"),
    Point: st.fixed_dictionaries({"x": NUMBERS}, optional={"y": st.sampled_from([2, "3", None])}),
    Point | None: st.none() | st.fixed_dictionaries({"x": NUMBERS}),
    Row: st.fixed_dictionaries({"day": DAYS}, optional={"label": st.just("a") | st.none()}),
    Named: st.fixed_dictionaries({"x": NUMBERS}),
    Pair: st.tuples(st.sampled_from([1, "5"]), TEXTS).map(list),
    set[int]: st.lists(st.sampled_from([1, "5"])),
    tuple[int, ...]: st.lists(st.sampled_from([1, "5"])),
    list[float]: st.lists(NUMBERS),
}
SHAPES: dict[str, tuple[Any, Any]] = {
    "list": (list.__class_getitem__, st.lists),
    "dict": (
        lambda kind: dict[str, kind],
        lambda pieces: st.dictionaries(st.sampled_from("ab"), pieces),
    ),
    "number keys": (
        lambda kind: dict[int, kind],
        lambda pieces: st.dictionaries(st.sampled_from("12"), pieces),
    ),
}


def bound(kind: Any, value: Any, *, is_handed_over: bool) -> Any:
    def fn(x: Any) -> None: ...

    fn.__annotations__["x"] = kind
    handles = HandleStore()
    sent = handles.keep_value(value) if is_handed_over else value
    try:
        return ArgumentBinder(fn).bind_json(json.dumps({"x": sent}), handles.value_of)[1]["x"]
    except RespondToModel:
        return "refused"


def typed(value: Any) -> Any:
    """Return a value with the type of each of its parts."""
    if isinstance(value, dict):
        return type(value), [(typed(key), typed(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [typed(each) for each in value]
    if isinstance(value, Point | Row):
        return type(value), typed(vars(value))
    return type(value), value


@pytest.mark.parametrize("kind", KINDS, ids=str)
@settings(max_examples=30)
@given(st.data(), st.sampled_from([*SHAPES]))
def test_what_is_handed_over_arrives_as_what_is_written_inline(kind, data, shape):
    of, values = SHAPES[shape]
    value = data.draw(values(KINDS[kind]))
    inline = bound(of(kind), value, is_handed_over=False)
    assert typed(bound(of(kind), value, is_handed_over=True)) == typed(inline)
    assert inline != "refused"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (list[float], [1.5, math.nan]),
        (list[Point], [Point(1.0)]),
        (dict[str, list[int]], {"a": [1], "b": []}),
        (set[str], {"a", "b"}),
        (list[date], [date(2026, 1, 1)]),
        (list[tuple[int, str]], [(1, "a")]),
        (list, [object()]),
        (dict, {1: object()}),
    ],
)
def test_what_needs_no_conversion_is_the_object_itself(kind, value):
    assert bound(kind, value, is_handed_over=True) is value
