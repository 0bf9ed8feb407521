"""A null stands for a field's default; where a dict holds it, it is a value, and none is lost."""

import json
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.protocol.errors import RespondToModel


class Row(BaseModel):
    kind: Literal["row"] = "row"
    prices: dict[str, float] = {}
    limit: int = 3


class Cell(BaseModel):
    kind: Literal["cell"]
    inner: "list[Cell]" = []


class Pair(NamedTuple):
    first: int
    second: int = 2


class Point(TypedDict):
    x: int
    name: NotRequired[str]


class Open(BaseModel, extra="allow"):
    __pydantic_extra__: dict[str, int]
    limit: int = 3


Either = Annotated[Row | Cell, Field(discriminator="kind")]


def bound(kind, value):
    def fn(x: Any, y: int = 1) -> None: ...

    fn.__annotations__["x"] = kind
    return ArgumentBinder(fn).bind_json(json.dumps({"x": value}))[1]["x"]


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Row, {"limit": None}, Row()),
        (Row, {"unknown": None}, Row()),
        (Row | None, {"limit": None}, Row()),
        (list[Row], [{"limit": None}], [Row()]),
        (dict[str, Row], {"a": {"limit": None}}, {"a": Row()}),
        (Either, {"kind": "cell", "inner": None}, Cell(kind="cell")),
        (Either | None, {"kind": "cell", "inner": [{"kind": "cell", "inner": None}]}, ...),
        (Pair, {"first": 1, "second": None}, Pair(1)),
        (Point, {"x": 1, "name": None}, {"x": 1}),
        (Open, {"limit": None, "more": 1}, Open(more=1)),
        (dict[str, int | None], {"a": None}, {"a": None}),
        (dict[str, Any], {"a": None}, {"a": None}),
    ],
)
def test_a_null_under_a_fields_name_is_its_default(kind, value, read):
    inner = Cell(kind="cell", inner=[Cell(kind="cell")])
    assert bound(kind, value) == (inner if read is ... else read)


@pytest.mark.parametrize(
    ("kind", "value", "place"),
    [
        (dict[str, float], {"a": 1.5, "b": None}, "x.b"),
        (dict[int, str], {"1": None}, "x.1"),
        (list[dict[str, int]], [{"a": 1, "b": None}], "x[0].b"),
        (Row, {"prices": {"a": None}, "limit": None}, "x.prices.a"),
        (Either | None, {"kind": "row", "prices": {"a": None}}, "x.prices.a"),
        (dict[str, Row], {"a": None}, "x.a"),
        (dict[str, float] | Row, {"limit": None}, "x.limit"),
        (dict[Annotated[str, Field(pattern="^a")], int], {"a": None}, "x.a"),
        (Open, {"more": None}, "x.more"),
        (list[int], [1, None], "x[1]"),
    ],
)
def test_a_null_that_a_dict_holds_is_reported(kind, value, place):
    with pytest.raises(RespondToModel, match="got null") as told:
        bound(kind, value)
    assert any(line.startswith(place) for line in str(told.value).splitlines())


HALF = '["half an emoji \\ud83d"]'


@pytest.mark.parametrize("text", [HALF, *("[" * deep + "]" * deep for deep in (150, 300, 5_000))])
def test_a_json_text_that_is_no_list_of_texts_is_reported(text):
    def write(lines: list[str]) -> None:
        """Write lines."""

    with pytest.raises(RespondToModel, match="lines"):
        ArgumentBinder(write).bind_json(json.dumps({"lines": text}))


def test_a_null_under_any_name_of_a_function_is_reported():
    def fn(limit: int = 3, **counts: int) -> None: ...

    binder = ArgumentBinder(fn)
    assert binder.bind_json('{"limit": null, "a": 1}') == ((), {"limit": 3, "a": 1})
    with pytest.raises(RespondToModel, match="a: expected an integer, got null"):
        binder.bind_json('{"a": null}')


PRICES = st.dictionaries(st.text(max_size=3), st.none() | st.integers(), max_size=4)


@given(st.dictionaries(st.text(max_size=3), st.lists(PRICES, max_size=3), max_size=3))
def test_no_entry_of_a_dict_is_lost(value):
    nulls = sum(each is None for rows in value.values() for row in rows for each in row.values())
    if nulls:
        with pytest.raises(RespondToModel) as told:
            bound(dict[str, list[dict[str, int]]], value)
        assert str(told.value).count("got null") == nulls
    else:
        assert bound(dict[str, list[dict[str, int]]], value) == value
