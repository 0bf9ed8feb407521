"""Fields of an output type become columns, whose values keep their types."""

import datetime
import decimal
import enum
import itertools
import math
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    BaseModel,
    Field,
    Json,
    PlainSerializer,
    SecretStr,
    computed_field,
    field_serializer,
    model_serializer,
)

from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.rows.tables.columns import AnswerColumns, column_values
from agent_magics.rows.tables.frames import converted, frame_of

Value = TypeVar("Value")


class Place(BaseModel):
    city: str
    zip: int | None = None


class Complaint(BaseModel):
    kind: Literal["billing", "delivery"]
    urgent: bool
    place: Place | None = None
    when: datetime.date | None = None
    tags: list[str] = []
    more: dict[str, Any] = {}


WHOLE = (
    '{"kind": "billing", "urgent": true, "place": {"city": "Ulm"}, "when": "2024-03-01", '
    '"tags": ["a"], "more": {"x": [1]}}'
)


def test_nested_fields_become_columns():
    columns = AnswerColumns(Complaint)
    assert {column.name: column.kind for column in columns.columns} == {
        "kind": "string",
        "urgent": "boolean",
        "place.city": "string",
        "place.zip": "integer",
        "when": "date",
        "tags": "list of string",
        "more": "json",
    }
    values = column_values(columns.columns, [columns.read(WHOLE), None])
    assert values["place.city"] == ["Ulm", None]
    assert values["when"] == [datetime.date(2024, 3, 1), None]
    assert values["more"] == [{"x": [1]}, None]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("answers", [[WHOLE, None], [None], []], ids=["some", "none", "empty"])
def test_each_library_has_the_columns_in_order(library, answers):
    columns = AnswerColumns(Complaint)
    read = [None if each is None else columns.read(each) for each in answers]
    values = column_values(columns.columns, read)
    rest = {"error": [None] * len(read), "tokens": [1] * len(read), "cost": [0.5] * len(read)}
    frame = frame_of(library, columns.columns, {**values, **rest})
    names = frame.column_names if library == "pyarrow" else list(frame.columns)
    assert names == [*values, "error", "tokens", "cost"]
    assert len(frame) == len(read)
    assert type(frame) in (pd.DataFrame, pl.DataFrame, pa.Table)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(None, "a word", "a word"), (str, "a", "a"), (int, "7", 7), (Literal["a", "b"], "a", "a"),
     (list[int], "[1]", [1])],
    ids=["text", "str", "int", "literal", "list"],
)  # fmt: skip
def test_other_types_have_one_column(kind, text, value):
    columns = AnswerColumns(kind)
    assert column_values(columns.columns, [columns.read(text)]) == {"answer": [value]}


def test_an_answer_that_does_not_fit_is_told():
    with pytest.raises(RespondToModel, match="kind"):
        AnswerColumns(Complaint).read('{"kind": "other", "urgent": false}')


def test_a_field_may_not_have_the_name_of_our_columns():
    class Priced(BaseModel):
        cost: float

    with pytest.raises(FatalError, match=r"'cost'.*rename"):
        AnswerColumns(Priced)


def test_a_frame_is_no_row():
    with pytest.raises(FatalError, match="one answer that is a table"):
        AnswerColumns(pd.DataFrame)


class Colour(enum.Enum):
    RED = "r"


class Level(enum.IntEnum):
    LOW = 1


class Scored(BaseModel, Generic[Value]):
    value: Value
    score: int | float


class Written(BaseModel):
    """Its fields are written in other ways than they are asked for."""

    day: datetime.date
    price: decimal.Decimal
    key: SecretStr
    place: Place | None = Field(None, serialization_alias="at")
    size: int = "unknown"  # nobody checks a default
    left_out: int = Field(0, exclude=True)

    @field_serializer("day")
    def _written(self, day):
        return f"{day:%d.%m.%Y}"

    @computed_field
    @property
    def year(self) -> int:
        return self.day.year


class Counted(BaseModel):
    words: list[str]

    @model_serializer
    def _count(self):
        return len(self.words)


class Ambiguous(BaseModel):
    place: Place
    name: str = Field(alias="place.city")


def test_two_fields_of_one_column_are_refused():
    with pytest.raises(FatalError, match=r"'place\.city'.*rename"):
        AnswerColumns(Ambiguous)


UTC = datetime.UTC
TIMES = ['"2024-01-01T00:00:00Z"', '"2024-01-01T02:00:00+05:00"', '"2024-01-01T00:00:00"', "null"]
IN_UTC = [
    datetime.datetime(2024, 1, 1, tzinfo=UTC),
    datetime.datetime(2023, 12, 31, 21, tzinfo=UTC),
    datetime.datetime(2024, 1, 1, tzinfo=UTC),
    None,
]
UserId = NewType("UserId", int)
# Type, an answer, and the values of its columns.
FIELDS = {
    "generic": (Scored[Place], '{"value": {"city": "Ulm"}, "score": 1}',
                {"value.city": "Ulm", "value.zip": None, "score": 1.0}),
    "optional": (Place | None, '{"city": "Ulm"}', {"city": "Ulm", "zip": None}),
    "written": (Written, '{"day": "2024-03-01", "price": "1.50", "key": "k", "place": null}',
                {"day": "01.03.2024", "price": "1.50", "key": "**********", "at.city": None,
                 "at.zip": None, "size": "unknown", "year": 2024}),
    "serializer": (Counted, '{"words": ["a", "b"]}', {"answer": 2}),
    "enum": (Colour, '"r"', {"answer": "r"}),
    "optional enum": (Colour | None, '"r"', {"answer": "r"}),
    "number enum": (Level, "1", {"answer": 1}),
    "none": (Literal["a", None], "null", {"answer": None}),
    "new type": (UserId, "7", {"answer": 7}),
    "numbers": (int | float, "1", {"answer": 1.0}),
    "infinite": (float, "Infinity", {"answer": float("inf")}),
}  # fmt: skip


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "parts"])
@pytest.mark.parametrize("name", FIELDS)
def test_columns_hold_what_the_type_writes(library, name):
    kind, answer, expected = FIELDS[name]
    columns = AnswerColumns(kind)
    rest = {each: [None] for each in ("error", "tokens", "cost")}
    made = "pyarrow" if library == "parts" else library
    values = {**column_values(columns.columns, [columns.read(answer)]), **rest}
    frame = frame_of(made, columns.columns, values)
    if library == "parts":
        frame = converted(frame, "pandas")
    found = {each: frame[each][0] for each in expected}
    if library == "pyarrow":
        found = {each: value.as_py() for each, value in found.items()}
    found = {each: None if pd.isna(value) else value for each, value in found.items()}
    if name == "serializer" and library != "pandas":  # it does not say what it writes
        expected = {"answer": "2"}
    assert found == expected
    for column, value in found.items():
        assert value is None or isinstance(value, str) == isinstance(expected[column], str)


def test_columns_of_the_type_alone_are_told():
    assert [name for name, _ in AnswerColumns(Written).of_type] == [
        *("at.city", "at.zip", "day", "price", "year")
    ]
    for kind in (None, str, int, int | None, list[int], Complaint, Place):
        assert AnswerColumns(kind).of_type == ()


def of_one_field(
    kind: Any = int, writes: Callable[[Any], Any] | None = None, computes: Any = None
) -> type[BaseModel]:
    """Return a type with a field that is asked for as a number, and what it makes of that."""

    class Answer(BaseModel):
        n: kind
        if writes:
            _written = field_serializer("n")(writes)
        if computes:

            @computed_field(return_type=computes)
            def half(self):
                return computes(self.n / 2)

    return Answer


def as_text(value: int) -> str:
    return str(value)


def as_float(value: int) -> float:
    return value


def unsaid(value):
    return value


ASKED_ALIKE = [
    int,
    Annotated[int, PlainSerializer(as_text)],
    Annotated[int, PlainSerializer(as_float)],
    *(of_one_field(writes=writes) for writes in (None, as_text, as_float, unsaid)),
    *(of_one_field(computes=kind) for kind in (int, str)),
]


@pytest.mark.parametrize(
    ("one", "two"), [*itertools.combinations(ASKED_ALIKE, 2)], ids=lambda kind: str(kind)[:20]
)
def test_types_that_write_other_columns_share_no_answers(one, two):
    """The model is asked the same, and what was kept of its answer is what the type wrote."""
    asked = [(columns.schema, columns.of_type) for columns in map(AnswerColumns, (one, two))]
    assert asked[0] != asked[1]


def test_types_that_write_the_same_share_answers():
    assert AnswerColumns(of_one_field()).of_type == AnswerColumns(of_one_field()).of_type


# Type, answers, values in pandas, values in tables that need one type a column.
OTHERS = {
    "dict": (dict[str, int], ['{"a": 1}'], [{"a": 1}], ['{"a": 1}']),
    "large": (int, ["1", str(1 << 70)], [1, 1 << 70], [1, None]),
    "optional": (int | None, ["9007199254740993", "null"], [9007199254740993, None], None),
    "decimal": (decimal.Decimal, ['"1.50"', "2"], ["1.50", "2"], None),
    "union": (int | str, ["1", '"a"'], [1, "a"], ["1", "a"]),
    "json": (Json, ['"[1]"'], [[1]], ["[1]"]),
    "enums": (list[Colour], ['["r"]'], [["r"]], None),
    "none in lists": (list[int | None], ["[1, null]"], [[1, None]], None),
    "zones": (datetime.datetime | None, TIMES, IN_UTC, None),
    "years": (datetime.datetime, ['"0001-01-01T00:00:00+05:00"'], [None], None),
    "text": (None, ["a\ud800"], ["a?"], None),
    "numbers": (
        int | float,
        ["9007199254740993", "2.5", f"1{'0' * 400}"],
        [2.0**53, 2.5, None],
        None,
    ),
    "lists of numbers": (list[int | float], ["[9007199254740993, 2.5]"], [[2.0**53, 2.5]], None),
}


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "parts"])
@pytest.mark.parametrize("name", OTHERS)
def test_values_of_every_type_come_into_each_library(library, name):
    kind, answers, loose, typed = OTHERS[name]
    columns = AnswerColumns(kind)
    values = column_values(columns.columns, [columns.read(answer) for answer in answers])
    rest = {each: [None] * len(answers) for each in ("error", "tokens", "cost")}
    made = "pyarrow" if library == "parts" else library
    frame = frame_of(made, columns.columns, {**values, **rest})
    if library == "parts":
        frame = converted(frame, "pandas")
    column = frame["answer"]
    found = column.to_pylist() if library == "pyarrow" else column.to_list()
    expected = loose if library == "pandas" or typed is None else typed
    if name == "zones" and library in ("pyarrow", "parts"):  # in UTC, and they do not say so
        expected = [each and each.replace(tzinfo=None) for each in expected]
    assert [None if _is_nothing(each) else each for each in found] == expected


HALF = 1 << 63
EDGES = [0, 1, -1, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63), (1 << 64) - 1, 1 << 64]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@given(numbers=st.lists(st.none() | st.sampled_from(EDGES) | st.integers(), max_size=4))
def test_a_whole_number_of_any_size_changes_no_other(library, numbers):
    rest = {each: [None] * len(numbers) for each in ("error", "tokens", "cost")}
    frame = frame_of(library, AnswerColumns(int).columns, {"answer": numbers, **rest})
    column = frame["answer"]
    found = column.to_pylist() if library == "pyarrow" else column.to_list()
    if library != "pandas":
        numbers = [each if -HALF <= (each or 0) < HALF else None for each in numbers]
    assert [None if _is_nothing(each) else each for each in found] == numbers


class Bounded(BaseModel):
    least: float = -math.inf
    most: dict[str, float] = {"a": math.inf}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Bounded, "{}"),
        (Bounded | None, "{}"),
        (list[Bounded], "[{}]"),
        (dict[str, Bounded], '{"a": {}}'),
    ],
)
def test_columns_hold_a_number_without_end_wherever_it_stands(kind, text):
    columns = AnswerColumns(kind)
    assert str(column_values(columns.columns, [columns.read(text)])).count("inf") == 2


def _is_nothing(value):
    return value is None or value is pd.NA or value is pd.NaT or value != value


def test_an_answer_may_be_nested_as_deep_as_one_is_read():
    columns, depth = AnswerColumns(dict[str, Any]), 200
    answer = columns.read('{"a":' * depth + "1" + "}" * depth)
    first, second = column_values(columns.columns, [answer, b'{"b":2}'])["answer"]
    assert len(repr(first)) > depth and second == {"b": 2}


# Answers of other types: in a file that was given there may be any.
FOREIGN = [b'{"x":[1]}', b'"text"', b"[1,null]", b'["a"]', b"1.5", b"2.0", b"true", b"null"]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (str, ['{"x": [1]}', "text", "[1, null]", '["a"]', "1.5", "2.0", "true", None]),
        (int, [None, None, None, None, None, 2, None, None]),
        (float, [None, None, None, None, 1.5, 2.0, None, None]),
        (bool, [None, None, None, None, None, None, True, None]),
        (datetime.date, [None] * 8),
        (datetime.datetime, [None] * 8),
        (list[int], [None, None, [1, None], [None], None, None, None, None]),
        (list[str], [None, None, ["1", None], ["a"], None, None, None, None]),
    ],
    ids=["text", "int", "float", "bool", "date", "time", "ints", "texts"],
)
def test_an_answer_that_does_not_fit_its_column_spoils_no_others(library, kind, expected):
    columns = AnswerColumns(kind).columns
    rest = {each: [None] * len(FOREIGN) for each in ("error", "tokens", "cost")}
    column = frame_of(library, columns, {**column_values(columns, FOREIGN), **rest})["answer"]
    found = column.to_pylist() if library == "pyarrow" else column.to_list()
    assert [None if _is_nothing(each) else each for each in found] == expected
