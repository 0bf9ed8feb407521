"""Types as results: their schemas, and a model's answers read as values."""

import dataclasses
import datetime
import enum
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, NotRequired, TypedDict

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_validator

from agent_magics.engine.results.structured import NOTHING, OutputType, json_in
from agent_magics.models.wires.transforms import strict_form
from agent_magics.protocol.errors import FatalError, RespondToModel


class Row(BaseModel):
    """A month."""

    month: str
    total: float = Field(ge=0)
    note: str | None = None


class Tree(BaseModel):
    value: int
    children: list["Tree"] = []


@dataclasses.dataclass
class Day:
    number: int
    date: datetime.date


class Point(TypedDict):
    x: int
    name: NotRequired[str]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Row, '{"month": "m", "total": 1}', Row(month="m", total=1)),
        (Row, '{"month": "m", "total": "1.5", "note": null}', Row(month="m", total=1.5)),
        (Row, 'Here it is: {"month": "m", "total": 2}. Done.', Row(month="m", total=2)),
        (Row, 'So:\n```json\n{"month": "m", "total": 2}\n```\n', Row(month="m", total=2)),
        (list[Row], '{"value": [{"month": "m", "total": 1}]}', [Row(month="m", total=1)]),
        (list[Row], '[{"month": "m", "total": 1}]', [Row(month="m", total=1)]),
        (list[Row], '{"value": []}', []),
        (Tree, '{"value": 1, "children": [{"value": 2}]}', Tree(value=1, children=[Tree(value=2)])),
        (Day, '{"number": 1, "date": "2024-03-01"}', Day(1, datetime.date(2024, 3, 1))),
        (Point, '{"x": 1}', {"x": 1}),
        (int, '{"value": 42}', 42),
        (int, "42", 42),
        (int, '{"value": "42"}', 42),
        (float, '{"value": 1}', 1.0),
        (bool, "true", True),
        (str, "Just words: {}", "Just words: {}"),
        (dict[str, float], '{"a": 1}', {"a": 1.0}),
        (dict[str, float], '{"value": 1}', {"value": 1.0}),
        (Literal["a", "b"], '{"value": "a"}', "a"),
        (Literal["a", "b"], " a ", "a"),
        (Colour, '{"value": "red"}', Colour.RED),
        (Row | None, '{"value": null}', None),
        (int | Row, '{"value": {"month": "m", "total": 0}}', Row(month="m", total=0)),
        (tuple[int, str], '{"value": [1, "a"]}', (1, "a")),
        (set[int], '{"value": [1, 1]}', {1}),
        (dict, '{"a": [1]}', {"a": [1]}),
        (Any, '{"value": [1]}', [1]),
    ],
)
def test_an_answer_becomes_a_value(kind, text, value):
    read = OutputType(kind).read(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "problems"),
    [
        (
            list[Row],
            '[{"month": "m"}, {"month": 3, "total": -1}]',
            [
                "value[0].total: expected a number, got nothing (required)",
                "value[1].month: expected a string, got 3 (number)",
                "value[1].total: expected a number >= 0.0, got -1 (number)",
            ],
        ),
        (Row, "5", ["the answer: expected an object, got 5 (number)"]),
        (Row, '{"total": 1}', ["month: expected a string, got nothing (required)"]),
        (Tree, '{"value": 1, "children": [{"value": "q"}]}', ["children[0].value: expected"]),
        (int, "no number", ["the answer: expected JSON, got text without any"]),
        (Row, "", ["the answer: expected JSON, got text without any"]),
        (Row, '{"month": "m", "tot', ["the answer: expected JSON"]),
        (Literal["a", "b"], "c", ["value: expected 'a' or 'b', got 'c' (string)"]),
        (dict[str, float], '{"a": "x"}', ["a: expected a number, got 'x' (string)"]),
        (Day, '{"number": 1, "date": "soon"}', ["date: expected a date such as 2024-03-31"]),
    ],
)
def test_what_does_not_fit_is_told_place_by_place(kind, text, problems):
    with pytest.raises(RespondToModel) as refusal:
        OutputType(kind).read(text)
    lines = str(refusal.value).splitlines()
    assert len(lines) == len(problems)
    for line, problem in zip(lines, problems, strict=True):
        assert line.startswith(problem)


@pytest.mark.parametrize("kind", [Row, list[Row], Tree, Day, Point, int, Colour, pd.DataFrame])
def test_the_schema_is_an_object_with_a_strict_form(kind):
    schema = OutputType(kind).schema
    assert schema["type"] == "object"
    assert strict_form(schema) is not None
    text = json.dumps(schema)
    for name in schema.get("$defs", {}):
        assert f'"#/$defs/{name}"' in text


def test_an_object_stands_for_itself_and_anything_else_is_wrapped():
    assert set(OutputType(Row).schema["properties"]) == {"month", "total", "note"}
    assert set(OutputType(list[Row]).schema["properties"]) == {"value"}
    assert set(OutputType(Row | None).schema["properties"]) == {"value"}


def test_text_needs_no_schema():
    assert OutputType(str).schema is None
    assert OutputType(str).instructions == ""


def test_the_model_is_told_the_schema():
    kind = OutputType(list[Row])
    assert json.dumps(kind.schema, ensure_ascii=False, separators=(",", ":")) in kind.instructions


@pytest.mark.parametrize(
    "kind",
    [
        5,
        "Row",
        [Row],
        object(),
        len,
        type,
        bytes,
        pd.Series,
        list[pd.DataFrame],
        dict[str, pd.Timestamp | pd.Series],
        Callable,
        list["Nowhere"],  # noqa: F821 - that is the point
    ],
    ids=lambda kind: "an object" if type(kind) is object else str(kind),
)
def test_what_is_no_type_for_an_answer_is_refused_in_one_sentence(kind):
    with pytest.raises(FatalError) as refusal:
        OutputType(kind)
    said = str(refusal.value)
    assert said.startswith("output=")
    assert "pydantic model" in said
    assert "\n" not in said


def test_a_validator_that_fails_itself_is_the_persons_to_mend():
    class Odd(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def look(cls, value: int) -> int:
            return {}[value]

    with pytest.raises(FatalError, match=r"validator of .*Odd failed itself"):
        OutputType(Odd).read('{"a": 1}')


def test_what_a_validator_refuses_is_told_to_the_model():
    class Even(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def look(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    with pytest.raises(RespondToModel, match=r"^a: must be even, got 1"):
        OutputType(Even).read('{"a": 1}')


def test_a_failure_is_one_sentence_however_many_problems_there_are():
    kind = OutputType(list[int])
    with pytest.raises(RespondToModel) as refusal:
        kind.read(json.dumps(["x"] * 100))
    said = kind.failure(str(refusal.value))
    assert said.startswith("The model's answer is no list[int]")
    assert len(said) < 800
    assert "\n" not in said


INT, ROWS = OutputType(int), OutputType(list[Row])


@given(st.text())
def test_any_text_is_read_or_refused(text):
    for kind in (INT, ROWS):
        with suppress(RespondToModel):
            assert isinstance(kind.read(text), (int, list))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_json_is_found_as_it_is_and_in_a_fence(value):
    text = json.dumps(value)
    assert json_in(text)[0] == value == json.loads(json_in(text)[1])
    found, written = json_in(f"I found this.\n\n```json\n{text}\n```\nThat is all.")
    assert found == value == json.loads(written)


@given(st.text(alphabet=st.characters(blacklist_characters="[{`"), min_size=1))
def test_words_are_no_json(text):
    assume_words = f"word {text}"
    assert json_in(assume_words)[0] is NOTHING


def test_a_deep_nest_is_survived():
    assert json_in("[" * 100_000)[0] is NOTHING
