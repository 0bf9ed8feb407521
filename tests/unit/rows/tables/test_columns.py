"""Fields of an output type become columns, whose values keep their types."""

import datetime
from typing import Any, Literal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pydantic import BaseModel

from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.rows.tables.columns import AnswerColumns
from agent_magics.rows.tables.frames import frame_of


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
    values = columns.values([columns.read(WHOLE), None])
    assert values["place.city"] == ["Ulm", None]
    assert values["when"] == [datetime.date(2024, 3, 1), None]
    assert values["more"] == [{"x": [1]}, None]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("answers", [[WHOLE, None], [None], []], ids=["some", "none", "empty"])
def test_each_library_has_the_columns_in_order(library, answers):
    columns = AnswerColumns(Complaint)
    read = [None if each is None else columns.read(each) for each in answers]
    values = columns.values(read)
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
    assert columns.values([columns.read(text)]) == {"answer": [value]}


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
