"""Rows and answers of unusual kinds: a map is what a loop in plain Python over `agent.run` is."""

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import json
import math
import re
import types
import uuid
from typing import Any, Literal, NamedTuple

import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest
from typing_extensions import TypedDict

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from tests.support.rows.echo import Echo


class Kind(enum.Enum):
    A, B = "a", 2


class Text(str):
    """A text of a class of its own."""


class Letter(NamedTuple):
    text: Any


class Model(pydantic.BaseModel):
    text: Any


@dataclasses.dataclass
class Data:
    text: Any


class Slots:
    """A class whose objects have no dict."""

    __slots__ = ("text",)

    def __init__(self, text):
        self.text = text


class Named(list):
    """A list that has an attribute of its own."""

    def __init__(self, text):
        super().__init__([1, 2])
        self.text = text


DAY, TIME = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 23, 59, 59, 7)
ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))
NUMBERS = [0, -1, 1 << 70, 1.5, -0.0, 1e300, math.inf, True, 2 + 3j]
DECIMALS = [decimal.Decimal("1.50"), fractions.Fraction(1, 3)]
NESTED = [[1, "ä", None], {"b": [1.5], "a": {"x": "y"}}, (), {}, [DAY, np.int64(3)]]
TIMES = [DAY, TIME, TIME.replace(tzinfo=ZONE), dt.time(1, 2), dt.timedelta(days=1, seconds=3)]
STRINGS = [
    "a",
    " b ",
    "",
    "\n",
    "ä\U0001f600",
    "{{text}}",
    "\\{{text}}",
    "\0",
    "\u2028",
    "x" * 5000,
]


def series(*values, **options):
    return pd.Series(list(values), name="text", **options)


def framed(column):
    return pd.DataFrame({"text": column, "other": 1})


# What is given as rows -> the values that a loop over it meets.
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "strings": (lambda: STRINGS, STRINGS),
    "texts of a class": (lambda: [Text("a")], ["a"]),
    "numbers": (lambda: NUMBERS, NUMBERS),
    "decimals": (lambda: DECIMALS, DECIMALS),
    "missing": (lambda: ["a", None, math.nan, pd.NA, pd.NaT, decimal.Decimal("NaN"), "b"],
                ["a", None, None, None, None, None, "b"]),
    "numpy scalars": (lambda: [np.int8(3), np.float32(0.1), np.bool_(True), np.str_("s")],
                      [3, np.float32(0.1), True, "s"]),
    "numpy missing": (lambda: [np.float64("nan"), *map(np.datetime64, ["NaT"] * 2, "sD"),
                               np.timedelta64("NaT", "s")], [None] * 4),
    "times": (lambda: TIMES, TIMES),
    "nested": (lambda: [{"text": each} for each in NESTED], NESTED),
    "lists as rows": (lambda: [[1, "ä"], (), [DAY]], [[1, "ä"], (), [DAY]]),
    "addresses": (lambda: [ipaddress.ip_address("::1")], [ipaddress.ip_address("::1")]),
    "pandas values": (lambda: [pd.Period("2024-02"), pd.Interval(0, 1), pd.Timedelta(days=1)],
                      ["2024-02", "(0, 1]", "1 days 00:00:00"]),
    "ranges as rows": (lambda: [range(2), re.compile("a")], [range(2), re.compile("a")]),
    "enums": (lambda: list(Kind), ["a", 2]),
    "uuid": (lambda: [uuid.UUID(int=7)], [uuid.UUID(int=7)]),
    "surrogates": (lambda: ["\ud800", "a\udcff", "b"], [None, None, "b"]),
    "bytes": (lambda: [b"no picture", bytearray(b"x"), "b"], [None, None, "b"]),
    "nested sets": (lambda: [{"text": {"x": {"b", "a"}}}], [{"x": ["a", "b"]}]),
    "arrays": (lambda: [np.arange(3), np.zeros((2, 1))], [[0, 1, 2], [[0.0], [0.0]]]),
    "sets as values": (lambda: [{"b", "a"}, frozenset(), {"k": 1}.keys()], [["a", "b"], [], ["k"]]),
    "tuple": (lambda: ("a", "b"), ["a", "b"]),
    "range": (lambda: range(3), [0, 1, 2]),
    "deque": (lambda: collections.deque("ab"), ["a", "b"]),
    "generator": (lambda: (each for each in "ab"), ["a", "b"]),
    "map": (lambda: map(str, [1, 2]), ["1", "2"]),
    "zip": (lambda: zip("ab", [1, 2], strict=True), [("a", 1), ("b", 2)]),
    "set": (lambda: {"a"}, ["a"]),
    "frozenset": (lambda: frozenset(["a"]), ["a"]),
    "keys": (lambda: {"a": 1, "b": 2}.keys(), ["a", "b"]),
    "values": (lambda: {"a": "x", "b": "y"}.values(), ["x", "y"]),
    "array": (lambda: array.array("i", [1, 2]), [1, 2]),
    "one": (lambda: ["a"], ["a"]),
    "none": (list, []),
    "empty generator": (lambda: iter(()), []),
    "dicts": (lambda: [{"text": "a"}, {"text": 2, "more": 1}], ["a", 2]),
    "dicts without it": (lambda: [{"text": "a"}, {"more": 1}], ["a", None]),
    "mappings": (lambda: [types.MappingProxyType({"text": "a"})], ["a"]),
    "named tuples": (lambda: [Letter("a"), Letter(None)], ["a", None]),
    "models": (lambda: [Model(text="a"), Model(text=[1])], ["a", [1]]),
    "dataclasses": (lambda: [Data("a"), Data(DAY)], ["a", DAY]),
    # An array that is compared with something is an array, of which no one bool is.
    "objects with arrays": (
        lambda: [kind(value)
                 for kind in (Letter, Data, Slots, lambda value: types.SimpleNamespace(text=value),
                              lambda value: Model(text=value))
                 for value in (np.arange(3), np.eye(2), pd.Series([1, 2]), pl.Series([1, 2]))],
        [[0, 1, 2], [[1.0, 0.0], [0.0, 1.0]], [1, 2], [1, 2]] * 5),
    "lists with attributes": (lambda: [Named("a"), Named([3])], ["a", [3]]),
    "namespaces": (lambda: [types.SimpleNamespace(text="a")], ["a"]),
    "object series": (lambda: series("a", 1, None, [2]), ["a", 1, None, [2]]),
    "string series": (lambda: series("a", None, dtype="string"), ["a", None]),
    "arrow series": (lambda: series("a", None, dtype="string[pyarrow]"), ["a", None]),
    "nullable integers": (lambda: framed(series(1, None, dtype="Int64")), [1, None]),
    "floats": (lambda: framed([1.0, math.nan, 2.5]), [1.0, None, 2.5]),
    "booleans": (lambda: framed(series(True, None, dtype="boolean")), [True, None]),
    "categories": (lambda: framed(series("a", None, "b", dtype="category")), ["a", None, "b"]),
    "pandas times": (lambda: framed(pd.to_datetime(series("2024-02-29", None))),
                     [dt.datetime(2024, 2, 29), None]),
    "pandas zones": (lambda: framed(pd.to_datetime(series("2024-02-29T01:00Z"))),
                     [dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC)]),
    "durations": (lambda: framed(pd.to_timedelta(series("1 day", None))),
                  [pd.Timedelta(days=1), None]),
    "periods": (lambda: framed(series(pd.Period("2024-02"))), ["2024-02"]),
    "intervals": (lambda: framed(pd.cut(series(1, 2), [0, 1, 2])), ["(0, 1]", "(1, 2]"]),
    "sparse": (lambda: framed(pd.arrays.SparseArray([0, 0, 3])), [0, 0, 3]),
    "levels as index": (
        lambda: framed(series("a", "b")).set_index(pd.MultiIndex.from_tuples([(1, 2), (1, 3)])),
        ["a", "b"]),
    "equal labels": (lambda: framed(series("a", "b", index=[5, 5])), ["a", "b"]),
    "other order": (lambda: framed(series("a", "b", "c"))[::-1], ["c", "b", "a"]),
    "empty frame": (lambda: framed(series())[:0], []),
    "frame without rows": (lambda: pd.DataFrame({"text": []}), []),
    "polars": (lambda: pl.DataFrame({"text": ["a", None]}), ["a", None]),
    "polars lists": (lambda: pl.DataFrame({"text": [[1], []]}), [[1], []]),
    "polars structs": (lambda: pl.DataFrame({"text": [{"a": 1}]}), [{"a": 1}]),
    "polars times": (lambda: pl.DataFrame({"text": [TIME, None]}), [TIME, None]),
    "polars categories": (lambda: pl.DataFrame({"text": pl.Series(["a"], dtype=pl.Categorical)}),
                          ["a"]),
    "polars decimals": (lambda: pl.DataFrame({"text": [decimal.Decimal("1.50")]}),
                        [decimal.Decimal("1.50")]),
    "polars nulls": (lambda: pl.DataFrame({"text": [None, None]}), [None, None]),
    "polars nan": (lambda: pl.DataFrame({"text": [1.5, math.nan]}), [1.5, None]),
    "polars series": (lambda: pl.Series("text", ["a", "b"]), ["a", "b"]),
    "lazy": (lambda: pl.LazyFrame({"text": ["a", 1]}, strict=False), ["a", "1"]),
    "arrow": (lambda: pa.table({"text": ["a", None]}), ["a", None]),
    "arrow dictionary": (lambda: pa.table({"text": pa.array(["a"]).dictionary_encode()}), ["a"]),
    "arrow decimals": (lambda: pa.table({"text": [decimal.Decimal("1.50")]}),
                       [decimal.Decimal("1.50")]),
    "arrow lists": (lambda: pa.table({"text": [[1, None], None]}), [[1, None], None]),
    "arrow maps": (lambda: pa.table({"text": pa.array([[("k", 1)]],
                                                      pa.map_(pa.string(), pa.int64()))}),
                   [[("k", 1)]]),
    "arrow chunks": (lambda: pa.chunked_array([["a"], [], ["b"]]), ["a", "b"]),
    "numpy": (lambda: np.array([1.5, math.nan]), [1.5, None]),
    "numpy objects": (lambda: np.array(["a", None], dtype=object), ["a", None]),
    "numpy times": (lambda: np.array(["2024-02-29", "NaT"], "datetime64[D]"), [DAY, None]),
    "dask": (lambda: dask.dataframe.from_pandas(framed(["a", "b", "c"]), npartitions=2),
             ["a", "b", "c"]),
}  # fmt: skip


def written(value):
    """Return a value as docs/map.md says that a prompt has it; None where it has none."""
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=lambda each: plain(each))
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return None if value is None else str(value)


def plain(value):
    return value.item() if isinstance(value, np.generic) else str(value)


@pytest.fixture(scope="module")
def loop():
    """Returns the answer to one prompt, asked in a run of its own."""
    with Agent(Echo()) as agent:
        yield lambda text: None if text is None else agent.run_sync(f"Say {text}").text


@pytest.mark.parametrize("case", VALUES)
def test_a_map_is_a_loop_over_the_rows(case, loop):
    given, values = VALUES[case]
    with Agent(Echo()) as agent, dask.config.set(scheduler="synchronous"):
        done = agent.map_sync("Say {{text}}", given())
        frame = done.frame.to_pandas() if hasattr(done.frame, "to_pandas") else done.frame
    answers = [each if isinstance(each, str) else None for each in frame["answer"]]
    assert answers == [loop(written(value)) for value in values]
    # A row has either an answer or an error.
    assert [isinstance(each, str) for each in frame["error"]] == [each is None for each in answers]


# What the columns are called, of which the second is asked about, and its name in the prompt.
NAMES = {
    "blanks": (["x", "a b"], "a b"),
    "blanks around": (["x", " a"], " a"),
    "one but for blanks": (["a", " a"], " a"),
    "letters": (["x", "größe"], "größe"),
    "dots": (["x", "place.city"], "place.city"),
    "braces": (["x", "{a} b"], "{a} b"),
    "numbers": ([0, 1], "1"),
    "tuples": ([("x", "a"), ("x", "b")], "('x', 'b')"),
    "lines": (["x", "a\nb"], "a\nb"),
    "words": (["x", "class"], "class"),
    "of results": (["answer", "error"], "error"),
    "dashes": (["a-b", "__a__"], "__a__"),
}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "dicts"])
@pytest.mark.parametrize("case", NAMES)
def test_a_column_may_have_any_name(case, library, loop):
    columns, name = NAMES[case]
    frame = pd.DataFrame([["x", "a"], ["y", "b"]], columns=columns)
    texts = {str(each): frame[each].tolist() for each in columns}
    rows = {
        "pandas": lambda: frame,
        "polars": lambda: pl.DataFrame(texts),
        "pyarrow": lambda: pa.table(texts),
        "dicts": lambda: pd.DataFrame(texts).to_dict("records"),
    }[library]()
    with Agent(Echo()) as agent:
        done = agent.map_sync(f"Say {{{{{name}}}}}", rows).frame
    answers = done["answer"].to_pylist() if library == "pyarrow" else list(done["answer"])
    assert answers == [loop("a"), loop("b")]


@pytest.mark.parametrize(
    ("columns", "prompt", "said"),
    [
        (["a", "a"], "{{a}}", "more than one such column"),
        ([1, "1"], "{{1}}", "more than one such column"),
        (["a", "a"], lambda row: row["a"], "more than one such column"),
        ([" a "], "{{a}}", "no such column; there are: ' a '"),
        (["{a}"], "{{{a}}}", "no such column; there are: '{a}'"),
        (["a"], "{{b}}", "no such column; there are: 'a'"),
        (["a"], "a", "names no column"),
        ([], "{{a}}", "no such column; there are: none"),
    ],
)
def test_a_column_that_is_not_one_is_refused_in_a_sentence(columns, prompt, said):
    model = Echo()
    with Agent(model) as agent, pytest.raises(FatalError, match=said):
        agent.map_sync(prompt, pd.DataFrame([["x"] * len(columns)], columns=columns))
    assert not model.asked


def test_of_thousands_of_columns_some_are_named():
    names = [f"column {number}" for number in range(3000)]
    said = r"no such column; there are: 'column 0', .* 'column 49' and 2950 more\.$"
    with Agent(Echo()) as agent, pytest.raises(FatalError, match=said):
        agent.map_sync("{{nope}}", pd.DataFrame([["x"] * 3000], columns=names))


@pytest.mark.parametrize("table", [pd.DataFrame(index=[5, 5]), pa.table({"a": [1, 2]}).select([])])
def test_a_function_gets_a_dict_also_of_rows_without_columns(table):
    with Agent(Echo()) as agent:
        done = agent.map_sync(lambda row: f"{row}", table)
    assert list(map(str, done.frame["answer"])) == ["{}"] * 2


def test_an_object_with_neither_fields_nor_text_is_not_asked_about():
    model = Echo()
    with Agent(model) as agent, pytest.raises(FatalError, match="there are: none"):
        agent.map_sync("{{text}}", [object()])
    assert not model.asked


class Pair(pydantic.BaseModel):
    first: int
    second: str | None = pydantic.Field("x", alias="Second")


class Written(TypedDict):
    kind: Literal["a", "b"]


@dataclasses.dataclass
class Whole:
    pair: Pair
    kinds: list[Kind]


# The type -> answers of the model, of which some do not fit.
ANSWERS = {
    "int": (int, [{"value": 3}, {"value": "4"}, {"value": 1.5}, {"value": None}, {}]),
    "float": (float, [{"value": 1}, {"value": 1e308}, {"value": "x"}]),
    "bool": (bool, [{"value": True}, {"value": "no"}, {"value": 7}]),
    "text": (str, [{"value": ""}, {"value": "ä\u2028"}, {"value": 3}]),
    "literal": (Literal["a", 2], [{"value": "a"}, {"value": 2}, {"value": "b"}]),
    "enum": (Kind, [{"value": "a"}, {"value": 2}, {"value": "A"}]),
    "date": (dt.date, [{"value": "2024-02-29"}, {"value": "2023-02-29"}]),
    "list": (list[int], [{"value": [1, "2"]}, {"value": []}, {"value": 1}]),
    "dict": (dict[str, int], [{"a": 1}, {}, {"a": "x"}, []]),
    "optional": (int | None, [{"value": None}, {"value": 1}, {"value": "x"}]),
    "decimal": (decimal.Decimal, [{"value": "1.50"}, {"value": "x"}]),
    "uuid": (uuid.UUID, [{"value": str(uuid.UUID(int=7))}, {"value": "7"}]),
    "model": (Pair, [{"first": 1, "Second": None}, {"first": 1}, {"Second": "a"}, []]),
    "dict of fields": (Written, [{"kind": "a"}, {"kind": "c"}, {}]),
    "inside": (Whole, [{"pair": {"first": 1}, "kinds": ["a", 2]}, {"pair": {}, "kinds": []}]),
}


@pytest.mark.parametrize("text", ["", "no JSON", "null", "[]", '{"value": }', '{"first": 1}'])
@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_that_is_none_is_that_of_a_run(case, text):
    check_answer(ANSWERS[case][0], text)


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_that_of_a_run(case):
    kind, answers = ANSWERS[case]
    fit = {check_answer(kind, json.dumps(answer)) for answer in answers}
    assert fit == ({True} if kind is str else {True, False})


def check_answer(kind, text):
    """Compare the row with a run; return whether the answer fits."""
    with Agent(Echo(lambda prompt: text)) as agent:
        done = agent.map_sync("{{text}}", ["a row"], output=kind).frame.to_dict("records")
        by_run = agent.run_sync("a row", output=kind)
    ((error, *_), row) = row_of(done[0])
    assert isinstance(error, str) == (by_run.error is not None)
    if by_run.error is None:
        written = pydantic.TypeAdapter(kind).dump_python(by_run.value, mode="json", by_alias=True)
        assert row == (flat(written) if kind in (Pair, Written, Whole) else {"answer": written})
    return by_run.error is None


def row_of(found):
    """Return error, tokens and cost of a row, and its other values as JSON has them."""
    others = [found.pop(name) for name in ("error", "tokens", "cost")]
    return others, {name: of_table(value) for name, value in found.items()}


def of_table(value):
    if isinstance(value, list | dict):
        return value
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    return None if pd.isna(value) else value


def flat(fields, before=""):
    """Return an object's fields as columns."""
    found = {}
    for name, value in fields.items():
        is_object = isinstance(value, dict)
        found |= flat(value, f"{before}{name}.") if is_object else {f"{before}{name}": value}
    return found
