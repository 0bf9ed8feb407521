"""Signatures of the kind people write: their exact schemas, exact refusals, and what arrives."""

import __future__

import argparse
import array
import collections
import datetime
import enum
import fractions
import functools
import io
import ipaddress
import json
import math
import pathlib
import re
import subprocess
import sys
import typing
import uuid
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import date, timedelta
from datetime import datetime as Moment
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    Union,
)

import annotated_types
import numpy as np
import numpy.typing as npt  # noqa: F401 - signatures name it
import pandas as pd
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_core import SchemaValidator
from typing_extensions import Doc

from agent_magics.dispatch import context
from agent_magics.dispatch.arguments import decoding as arguments
from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.schema import generation as schema
from agent_magics.dispatch.schema.generation import derive_parameters
from agent_magics.dispatch.schema.signature import context_parameter, read_parameters
from agent_magics.protocol.errors import FatalError, RespondToModel

# The signatures below are text, so these names are used from there only.
USED_IN_TEXT = (
    (argparse, array, collections, fractions, io, ipaddress, pathlib, re, uuid, annotated_types),
    (np, pd, context, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence),
    (date, timedelta, Decimal, Path, Optional, Union, Doc, ToolContext),
)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    READ = "read"
    WRITE = "write"


@dataclass
class Row:
    name: str
    price: float = 1.0


@dataclass
class Order:
    rows: list[Row]
    tags: dict[str, str] = field(default_factory=dict)


class Filter(TypedDict):
    column: str
    value: NotRequired[int]


class Loose(TypedDict, total=False):
    column: str


class Point(NamedTuple):
    x: float
    y: float = 0.0


class Person(BaseModel):
    """Somebody."""

    name: str
    title: str = "Dr"
    age: int = Field(default=0, ge=0, description="in years")


class Open(BaseModel, extra="allow"):
    name: str


class Node(BaseModel):
    value: int
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


UserId = NewType("UserId", int)
MISSING = object()
Pet = Annotated[Cat | Dog, Field(discriminator="kind")]
T = typing.TypeVar("T")


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
BOOLEAN, NULL = {"type": "boolean"}, {"type": "null"}

DEFS = {
    "Cat": {
        "properties": {"kind": {"type": "string", "enum": ["cat"]}},
        "required": ["kind"],
        "type": "object",
        "additionalProperties": False,
    },
    "Color": {"enum": ["red", "blue"], "type": "string"},
    "Dog": {
        "properties": {"kind": {"type": "string", "enum": ["dog"]}},
        "required": ["kind"],
        "type": "object",
        "additionalProperties": False,
    },
    "Filter": {
        "additionalProperties": False,
        "properties": {"column": STRING, "value": INTEGER},
        "required": ["column"],
        "type": "object",
    },
    "Level": {"enum": [1, 2], "type": "integer"},
    "Loose": {
        "additionalProperties": False,
        "properties": {"column": STRING},
        "type": "object",
        "required": [],
    },
    "Mode": {"enum": ["read", "write"], "type": "string"},
    "Node": {
        "properties": {
            "value": INTEGER,
            "children": {"default": [], "items": {"$ref": "#/$defs/Node"}, "type": "array"},
        },
        "required": ["value"],
        "type": "object",
        "additionalProperties": False,
    },
    "Open": {
        "additionalProperties": True,
        "properties": {"name": STRING},
        "required": ["name"],
        "type": "object",
    },
    "Order": {
        "additionalProperties": False,
        "properties": {
            "rows": {"items": {"$ref": "#/$defs/Row"}, "type": "array"},
            "tags": {"additionalProperties": STRING, "type": "object"},
        },
        "required": ["rows"],
        "type": "object",
    },
    "Person": {
        "description": "Somebody.",
        "properties": {
            "name": STRING,
            "title": {"default": "Dr", "type": "string"},
            "age": {"default": 0, "description": "in years", "minimum": 0, "type": "integer"},
        },
        "required": ["name"],
        "type": "object",
        "additionalProperties": False,
    },
    "Point": {
        "maxItems": 2,
        "minItems": 1,
        "prefixItems": [NUMBER, {"default": 0.0, "type": "number"}],
        "type": "array",
    },
    "Row": {
        "additionalProperties": False,
        "properties": {"name": STRING, "price": {"default": 1.0, "type": "number"}},
        "required": ["name"],
        "type": "object",
    },
}

CASES = [
    ("", {}, [], ""),
    ("x", {"x": {}}, ["x"], "x: any JSON value"),
    ("x, y=1", {"x": {}, "y": {"default": 1}}, ["x"], "x: any JSON value"),
    ("x: str", {"x": STRING}, ["x"], ""),
    ("x: int", {"x": INTEGER}, ["x"], ""),
    ("x: float", {"x": NUMBER}, ["x"], ""),
    ("x: bool", {"x": BOOLEAN}, ["x"], ""),
    ("x: None", {"x": NULL}, ["x"], ""),
    ("x: Any", {"x": {}}, ["x"], "x: any JSON value"),
    ("x: object", {"x": {}}, ["x"], "x: any JSON value"),
    ('x: "str"', {"x": STRING}, ["x"], ""),
    ('x: str = "a"', {"x": {"type": "string", "default": "a"}}, [], ""),
    ("x: int = 3", {"x": {"type": "integer", "default": 3}}, [], ""),
    ("x: float = 0.5", {"x": {"type": "number", "default": 0.5}}, [], ""),
    ("x: bool = True", {"x": {"type": "boolean", "default": True}}, [], ""),
    ("x: str = None", {"x": {"type": "string", "default": None}}, [], ""),
    ("x: int = -1", {"x": {"type": "integer", "default": -1}}, [], ""),
    ('x: float = float("inf")', {"x": NUMBER}, [], ""),
    ('x: float = float("nan")', {"x": NUMBER}, [], ""),
    ("x: str | None", {"x": {"anyOf": [STRING, NULL]}}, ["x"], ""),
    ("x: str | None = None", {"x": {"anyOf": [STRING, NULL], "default": None}}, [], ""),
    ("x: Optional[int] = None", {"x": {"anyOf": [INTEGER, NULL], "default": None}}, [], ""),
    ("x: Optional[int] = 5", {"x": {"anyOf": [INTEGER, NULL], "default": 5}}, [], ""),
    ('x: Optional["int"] = None', {"x": {"anyOf": [INTEGER, NULL], "default": None}}, [], ""),
    ("x: int | str", {"x": {"anyOf": [INTEGER, STRING]}}, ["x"], ""),
    (
        "x: Union[int, str, None] = None",
        {"x": {"anyOf": [INTEGER, STRING, NULL], "default": None}},
        [],
        "",
    ),
    ("x: int | float", {"x": {"anyOf": [INTEGER, NUMBER]}}, ["x"], ""),
    (
        "x: str | list[str]",
        {"x": {"anyOf": [STRING, {"type": "array", "items": STRING}]}},
        ["x"],
        "",
    ),
    (
        "x: str | list[str] | None = None",
        {"x": {"anyOf": [STRING, {"type": "array", "items": STRING}, NULL], "default": None}},
        [],
        "",
    ),
    (
        "x: list[int] | list[str]",
        {"x": {"anyOf": [{"items": INTEGER, "type": "array"}, {"items": STRING, "type": "array"}]}},
        ["x"],
        "",
    ),
    ("x: list", {"x": {"items": {}, "type": "array"}}, ["x"], "x[]: any JSON value"),
    ("x: list[str]", {"x": {"type": "array", "items": STRING}}, ["x"], ""),
    ("x: list[int] = []", {"x": {"type": "array", "items": INTEGER, "default": []}}, [], ""),
    (
        "x: list[list[float]]",
        {"x": {"type": "array", "items": {"type": "array", "items": NUMBER}}},
        ["x"],
        "",
    ),
    (
        "x: list[str | None]",
        {"x": {"type": "array", "items": {"anyOf": [STRING, NULL]}}},
        ["x"],
        "",
    ),
    ('x: list["int"]', {"x": {"type": "array", "items": INTEGER}}, ["x"], ""),
    ("x: typing.List[int]", {"x": {"type": "array", "items": INTEGER}}, ["x"], ""),
    (
        "x: dict",
        {"x": {"additionalProperties": True, "type": "object"}},
        ["x"],
        "x: an object with free keys",
    ),
    (
        "x: dict[str, int]",
        {"x": {"additionalProperties": INTEGER, "type": "object"}},
        ["x"],
        "x: an object with free keys",
    ),
    (
        "x: dict[str, Any] = {}",
        {"x": {"additionalProperties": True, "default": {}, "type": "object"}},
        [],
        "x: an object with free keys",
    ),
    (
        "x: dict[int, str]",
        {"x": {"additionalProperties": STRING, "type": "object"}},
        ["x"],
        "x: an object with free keys",
    ),
    (
        "x: dict[Color, int]",
        {
            "x": {
                "additionalProperties": INTEGER,
                "propertyNames": {"$ref": "#/$defs/Color"},
                "type": "object",
            }
        },
        ["x"],
        "x: propertyNames is not in the strict subset",
    ),
    (
        "x: dict[str, list[int]] | None = None",
        {
            "x": {
                "anyOf": [
                    {"additionalProperties": {"items": INTEGER, "type": "array"}, "type": "object"},
                    NULL,
                ],
                "default": None,
            }
        },
        [],
        "x: an object with free keys",
    ),
    (
        "x: typing.Dict[str, float]",
        {"x": {"additionalProperties": NUMBER, "type": "object"}},
        ["x"],
        "x: an object with free keys",
    ),
    ("x: tuple", {"x": {"items": {}, "type": "array"}}, ["x"], "x[]: any JSON value"),
    ("x: tuple[int, ...]", {"x": {"items": INTEGER, "type": "array"}}, ["x"], ""),
    (
        "x: tuple[int, str]",
        {"x": {"maxItems": 2, "minItems": 2, "prefixItems": [INTEGER, STRING], "type": "array"}},
        ["x"],
        "x: prefixItems is not in the strict subset",
    ),
    (
        "x: tuple[float, float] = (0.0, 1.0)",
        {
            "x": {
                "default": [0.0, 1.0],
                "maxItems": 2,
                "minItems": 2,
                "prefixItems": [NUMBER, NUMBER],
                "type": "array",
            }
        },
        [],
        "x: prefixItems is not in the strict subset",
    ),
    ("x: set[str]", {"x": {"items": STRING, "type": "array", "uniqueItems": True}}, ["x"], ""),
    (
        "x: frozenset[int]",
        {"x": {"items": INTEGER, "type": "array", "uniqueItems": True}},
        ["x"],
        "",
    ),
    (
        "x: set[str] = frozenset()",
        {"x": {"default": [], "items": STRING, "type": "array", "uniqueItems": True}},
        [],
        "",
    ),
    ("x: Sequence[int]", {"x": {"items": INTEGER, "type": "array"}}, ["x"], ""),
    ("x: Sequence[str] = ()", {"x": {"default": [], "items": STRING, "type": "array"}}, [], ""),
    (
        "x: Mapping[str, int]",
        {"x": {"additionalProperties": INTEGER, "type": "object"}},
        ["x"],
        "x: an object with free keys",
    ),
    ("x: Iterable[int]", {"x": {"type": "array", "items": INTEGER}}, ["x"], ""),
    ("x: Iterable", {"x": {"items": {}, "type": "array"}}, ["x"], "x[]: any JSON value"),
    ("x: Iterator[str]", {"x": {"type": "array", "items": STRING}}, ["x"], ""),
    ("x: Generator[int, None, None]", {"x": {"type": "array", "items": INTEGER}}, ["x"], ""),
    ("x: Collection[int]", {"x": {"type": "array", "items": INTEGER}}, ["x"], ""),
    ("x: collections.deque[int]", {"x": {"items": INTEGER, "type": "array"}}, ["x"], ""),
    (
        "x: collections.Counter[str]",
        {"x": {"additionalProperties": INTEGER, "type": "object"}},
        ["x"],
        "x: an object with free keys",
    ),
    ('x: Literal["a"]', {"x": {"enum": ["a"], "type": "string"}}, ["x"], ""),
    ('x: Literal["a", "b"]', {"x": {"enum": ["a", "b"], "type": "string"}}, ["x"], ""),
    (
        'x: Literal["a", "b"] = "a"',
        {"x": {"enum": ["a", "b"], "type": "string", "default": "a"}},
        [],
        "",
    ),
    (
        'x: Literal["a", "b"] | None = None',
        {"x": {"anyOf": [{"enum": ["a", "b"], "type": "string"}, NULL], "default": None}},
        [],
        "",
    ),
    ("x: Literal[1, 2, 3]", {"x": {"enum": [1, 2, 3], "type": "integer"}}, ["x"], ""),
    ("x: Literal[True]", {"x": {"type": "boolean", "enum": [True]}}, ["x"], ""),
    (
        'x: Literal[1, "a"]',
        {"x": {"enum": [1, "a"]}},
        ["x"],
        "x: values of several types in one enum",
    ),
    (
        'x: Literal[None, "a"]',
        {"x": {"enum": [None, "a"]}},
        ["x"],
        "x: values of several types in one enum",
    ),
    (
        'x: list[Literal["a", "b"]]',
        {"x": {"type": "array", "items": {"enum": ["a", "b"], "type": "string"}}},
        ["x"],
        "",
    ),
    ("x: Color", {"x": {"$ref": "#/$defs/Color"}}, ["x"], ""),
    ("x: Color = Color.RED", {"x": {"$ref": "#/$defs/Color", "default": "red"}}, [], ""),
    (
        "x: Color | None = None",
        {"x": {"anyOf": [{"$ref": "#/$defs/Color"}, NULL], "default": None}},
        [],
        "",
    ),
    ("x: list[Color]", {"x": {"items": {"$ref": "#/$defs/Color"}, "type": "array"}}, ["x"], ""),
    ("x: Level", {"x": {"$ref": "#/$defs/Level"}}, ["x"], ""),
    ("x: Mode = Mode.READ", {"x": {"$ref": "#/$defs/Mode", "default": "read"}}, [], ""),
    ("x: Moment", {"x": {"format": "date-time", "type": "string"}}, ["x"], ""),
    (
        "x: Moment = Moment(2024, 3, 1)",
        {"x": {"default": "2024-03-01T00:00:00", "format": "date-time", "type": "string"}},
        [],
        "",
    ),
    ("x: date", {"x": {"format": "date", "type": "string"}}, ["x"], ""),
    (
        "x: date | None = None",
        {"x": {"anyOf": [{"format": "date", "type": "string"}, NULL], "default": None}},
        [],
        "",
    ),
    ("x: datetime.time", {"x": {"format": "time", "type": "string"}}, ["x"], ""),
    ("x: timedelta", {"x": {"format": "duration", "type": "string"}}, ["x"], ""),
    (
        "x: timedelta = timedelta(hours=1)",
        {"x": {"default": "PT1H", "format": "duration", "type": "string"}},
        [],
        "",
    ),
    ("x: Path", {"x": {"format": "path", "type": "string"}}, ["x"], ""),
    ('x: Path = Path(".")', {"x": {"default": ".", "format": "path", "type": "string"}}, [], ""),
    ("x: pathlib.PurePosixPath", {"x": {"format": "path", "type": "string"}}, ["x"], ""),
    ("x: str | Path", {"x": {"anyOf": [STRING, {"format": "path", "type": "string"}]}}, ["x"], ""),
    ("x: Decimal", {"x": {"anyOf": [NUMBER, STRING]}}, ["x"], ""),
    ("x: uuid.UUID", {"x": {"format": "uuid", "type": "string"}}, ["x"], ""),
    (
        "x: fractions.Fraction",
        {"x": {"anyOf": [NUMBER, {"format": "fraction", "type": "string"}]}},
        ["x"],
        "",
    ),
    ("x: complex", {"x": STRING}, ["x"], ""),
    ("x: re.Pattern[str]", {"x": {"format": "regex", "type": "string"}}, ["x"], ""),
    ("x: ipaddress.IPv4Address", {"x": {"format": "ipv4", "type": "string"}}, ["x"], ""),
    ("x: pydantic.Base64Bytes", {"x": {"format": "base64", "type": "string"}}, ["x"], ""),
    (
        "x: pydantic.HttpUrl",
        {"x": {"format": "uri", "maxLength": 2083, "minLength": 1, "type": "string"}},
        ["x"],
        "",
    ),
    ("x: pydantic.PositiveInt", {"x": {"exclusiveMinimum": 0, "type": "integer"}}, ["x"], ""),
    (
        "x: pydantic.SecretStr",
        {"x": {"format": "password", "type": "string", "writeOnly": True}},
        ["x"],
        "x: writeOnly is not in the strict subset",
    ),
    (
        "x: pydantic.Json",
        {"x": {"contentMediaType": "application/json", "contentSchema": {}, "type": "string"}},
        ["x"],
        "x: contentMediaType is not in the strict subset",
    ),
    ("x: UserId", {"x": INTEGER}, ["x"], ""),
    ("x: T", {"x": {}}, ["x"], "x: any JSON value"),
    ("x: Row", {"x": {"$ref": "#/$defs/Row"}}, ["x"], ""),
    (
        'x: Row = Row("a")',
        {"x": {"$ref": "#/$defs/Row", "default": {"name": "a", "price": 1.0}}},
        [],
        "",
    ),
    (
        "x: Row | None = None",
        {"x": {"anyOf": [{"$ref": "#/$defs/Row"}, NULL], "default": None}},
        [],
        "",
    ),
    ("x: list[Row]", {"x": {"items": {"$ref": "#/$defs/Row"}, "type": "array"}}, ["x"], ""),
    (
        "x: dict[str, Row]",
        {"x": {"additionalProperties": {"$ref": "#/$defs/Row"}, "type": "object"}},
        ["x"],
        "x: an object with free keys",
    ),
    ("x: Order", {"x": {"$ref": "#/$defs/Order"}}, ["x"], "Order.tags: an object with free keys"),
    ("x: Filter", {"x": {"$ref": "#/$defs/Filter"}}, ["x"], ""),
    ("x: list[Filter]", {"x": {"items": {"$ref": "#/$defs/Filter"}, "type": "array"}}, ["x"], ""),
    (
        "x: Filter | None = None",
        {"x": {"anyOf": [{"$ref": "#/$defs/Filter"}, NULL], "default": None}},
        [],
        "",
    ),
    ("x: Loose", {"x": {"$ref": "#/$defs/Loose"}}, ["x"], ""),
    (
        "x: Point",
        {"x": {"$ref": "#/$defs/Point"}},
        ["x"],
        "Point: prefixItems is not in the strict subset",
    ),
    ("x: Person", {"x": {"$ref": "#/$defs/Person"}}, ["x"], ""),
    ('x: "Person"', {"x": {"$ref": "#/$defs/Person"}}, ["x"], ""),
    ('x: list["Person"]', {"x": {"items": {"$ref": "#/$defs/Person"}, "type": "array"}}, ["x"], ""),
    ("x: Open", {"x": {"$ref": "#/$defs/Open"}}, ["x"], "Open: an object with free keys"),
    ("x: Node", {"x": {"$ref": "#/$defs/Node"}}, ["x"], ""),
    (
        "x: Person | Row",
        {"x": {"anyOf": [{"$ref": "#/$defs/Person"}, {"$ref": "#/$defs/Row"}]}},
        ["x"],
        "",
    ),
    (
        "x: Cat | Dog",
        {"x": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}},
        ["x"],
        "",
    ),
    ("x: Pet", {"x": {"anyOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}}, ["x"], ""),
    (
        'x: Annotated[str, "the words"]',
        {"x": {"type": "string", "description": "the words"}},
        ["x"],
        "",
    ),
    (
        'x: Annotated[str, Doc("the words")]',
        {"x": {"type": "string", "description": "the words"}},
        ["x"],
        "",
    ),
    (
        "x: Annotated[int, Field(ge=1, le=1000)] = 100",
        {"x": {"default": 100, "maximum": 1000, "minimum": 1, "type": "integer"}},
        [],
        "",
    ),
    (
        'x: Annotated[int, Field(description="how many")]',
        {"x": {"description": "how many", "type": "integer"}},
        ["x"],
        "",
    ),
    (
        "x: Annotated[int, annotated_types.Gt(0), annotated_types.Lt(10)]",
        {"x": {"exclusiveMaximum": 10, "exclusiveMinimum": 0, "type": "integer"}},
        ["x"],
        "",
    ),
    (
        "x: Annotated[str, Field(min_length=2, max_length=5)]",
        {"x": {"maxLength": 5, "minLength": 2, "type": "string"}},
        ["x"],
        "",
    ),
    (
        'x: Annotated[str, Field(pattern="^a+$")]',
        {"x": {"pattern": "^a+$", "type": "string"}},
        ["x"],
        "",
    ),
    (
        "x: Annotated[list[int], Field(min_length=1)]",
        {"x": {"items": INTEGER, "minItems": 1, "type": "array"}},
        ["x"],
        "",
    ),
    (
        "x: Annotated[float, Field(multiple_of=0.5)]",
        {"x": {"multipleOf": 0.5, "type": "number"}},
        ["x"],
        "",
    ),
    (
        'x: Annotated[str, Field(title="Words")]',
        {"x": {"title": "Words", "type": "string"}},
        ["x"],
        "",
    ),
    (
        'x: Annotated[str, Field(examples=["a"])]',
        {"x": {"examples": ["a"], "type": "string"}},
        ["x"],
        "",
    ),
    ('x: Annotated[str, Field(alias="from")]', {"from": STRING}, ["from"], ""),
    ("x: int = Field(3, ge=1)", {"x": {"default": 3, "minimum": 1, "type": "integer"}}, [], ""),
    ("x: int = Field(..., ge=1)", {"x": {"minimum": 1, "type": "integer"}}, ["x"], ""),
    (
        'x: Annotated[int, "a"] | None = None',
        {"x": {"anyOf": [INTEGER, NULL], "default": None}},
        [],
        "",
    ),
    ("x=None", {"x": {"default": None}}, [], "x: any JSON value"),
    ('x="a"', {"x": {"default": "a"}}, [], "x: any JSON value"),
    ("x=np.int64(3)", {"x": {}}, [], "x: any JSON value"),
    ("x: int = np.int64(3)", {"x": INTEGER}, [], ""),
    ("x: Any = MISSING", {"x": {}}, [], "x: any JSON value"),
    ("x=MISSING", {"x": {}}, [], "x: any JSON value"),
    ("x=Moment(2024, 3, 1)", {"x": {"default": "2024-03-01T00:00:00"}}, [], "x: any JSON value"),
    ("x=Color.RED", {"x": {"default": "red"}}, [], "x: any JSON value"),
    ('x=[1, {"a": None}]', {"x": {"default": [1, {"a": None}]}}, [], "x: any JSON value"),
    ("x=(1, 2)", {"x": {"default": [1, 2]}}, [], "x: any JSON value"),
    ("x: str, *, y: int = 2", {"x": STRING, "y": {"type": "integer", "default": 2}}, ["x"], ""),
    ("x: str, /, y: int", {"x": STRING, "y": INTEGER}, ["x", "y"], ""),
    (
        'x: str = "a", /, *, y: int',
        {"x": {"type": "string", "default": "a"}, "y": INTEGER},
        ["y"],
        "",
    ),
    ("x: str, **rest", {"x": STRING}, ["x"], "the arguments: an object with free keys"),
    ("x: str, **rest: int", {"x": STRING}, ["x"], "the arguments: an object with free keys"),
    ("x: str, ctx: ToolContext", {"x": STRING}, ["x"], ""),
    ("x: str, ctx: ToolContext | None = None", {"x": STRING}, ["x"], ""),
    ("x: str, *, ctx: Optional[ToolContext] = None", {"x": STRING}, ["x"], ""),
    ('x: str, ctx: "ToolContext"', {"x": STRING}, ["x"], ""),
    ('x: str, ctx: "ToolContext | None" = None', {"x": STRING}, ["x"], ""),
    ("x: str, ctx: context.ToolContext = None", {"x": STRING}, ["x"], ""),
    ("ctx: ToolContext", {}, [], ""),
    (
        "title: str, type: int, properties: list[str]",
        {"title": STRING, "type": INTEGER, "properties": {"type": "array", "items": STRING}},
        ["title", "type", "properties"],
        "",
    ),
    (
        'x: int, const: Literal["a"], default: str = "b"',
        {
            "x": INTEGER,
            "const": {"enum": ["a"], "type": "string"},
            "default": {"type": "string", "default": "b"},
        },
        ["x", "const"],
        "",
    ),
    (
        "schema: dict, self_: int",
        {"schema": {"additionalProperties": True, "type": "object"}, "self_": INTEGER},
        ["schema", "self_"],
        "schema: an object with free keys",
    ),
    (
        "x: Annotated[int | None, Field(ge=0)] = None",
        {"x": {"anyOf": [{"minimum": 0, "type": "integer"}, NULL], "default": None}},
        [],
        "",
    ),
    (
        "path: str, start_line: int = 1, end_line: int | None = None, "
        "max_lines: Annotated[int, Field(le=250)] = 250",
        {
            "path": STRING,
            "start_line": {"default": 1, "type": "integer"},
            "end_line": {"anyOf": [INTEGER, NULL], "default": None},
            "max_lines": {"default": 250, "maximum": 250, "type": "integer"},
        },
        ["path"],
        "",
    ),
    (
        'x: Annotated[Row, Field(description="one row")]',
        {"x": {"$ref": "#/$defs/Row", "description": "one row"}},
        ["x"],
        "",
    ),
    (
        "x: Color, y: Color",
        {"x": {"$ref": "#/$defs/Color"}, "y": {"$ref": "#/$defs/Color"}},
        ["x", "y"],
        "",
    ),
]


WAY_OUT = (
    "; take a name, a path or plain values instead (str, int, float, bool, list, dict, "
    "a dataclass, a pydantic model)."
)
NO_BYTES = " (JSON has no bytes; pydantic.Base64Bytes works)"
REFUSED_TYPES = [
    ("x: np.int64", "numpy.int64", ""),
    ("x: Callable", "collections.abc.Callable", ""),
    ("x: Callable[[int], int] | None = None", "Callable[[int], int] | None", ""),
    ("x: typing.IO[str]", "IO[str]", ""),
    ("x: typing.TextIO", "typing.TextIO", ""),
    ("x: bytes", "bytes", NO_BYTES),
    ("x: bytes | None = None", "bytes | None", NO_BYTES),
    ("x: dict[str, bytes]", "dict[str, bytes]", NO_BYTES),
    ("x: type", "type", ""),
    ("x: type[int]", "type[int]", " (a class is no JSON value)"),
    ("x: range", "range", ""),
    ("x: typing.NoReturn", "NoReturn", ""),
]

# Types whose objects are handed over by reference: signature, and what the handle leads to.
BY_REFERENCE = [
    ("x: pd.DataFrame", "pandas.DataFrame"),
    ("x: np.ndarray", "numpy.ndarray"),
    ("x: npt.NDArray[np.float64]", "numpy.ndarray"),
    ("x: io.StringIO", "_io.StringIO"),
    ("x: bytearray", "bytearray"),
    ("x: memoryview", "memoryview"),
    ("x: slice", "slice"),
    ("x: argparse.Namespace", "argparse.Namespace"),
    ("x: Exception", "Exception"),
    ("x: array.array", "array.array"),
]


def make(signature: str, future: bool = False, doc: str = "") -> Callable[..., Any]:
    """Define ``def f(signature)`` in this module, with or without annotations as strings."""
    flags = __future__.annotations.compiler_flag if future else 0
    code = compile(f"def f({signature}): ...", __file__, "exec", flags=flags, dont_inherit=True)
    names: dict[str, Any] = {}
    exec(code, globals(), names)
    names["f"].__doc__ = doc
    return names["f"]


def refusal(fn: Callable[..., Any]) -> str:
    with pytest.raises(FatalError) as caught:
        derive_parameters(fn)
    return str(caught.value)


def complaint(fn: Callable[..., Any], text: str) -> str:
    with pytest.raises(RespondToModel) as caught:
        ArgumentBinder(fn).bind_json(text)
    return str(caught.value)


def bound(signature: str, text: str) -> Any:
    return ArgumentBinder(make(signature)).bind_json(text)[1]["x"]


# -- schemas -------------------------------------------------------------------------------------


@pytest.mark.parametrize("future", [False, True], ids=["objects", "strings"])
@pytest.mark.parametrize(("signature", "properties", "required", "reason"), CASES)
def test_signature(signature, properties, required, reason, future):
    derived, strict, strict_reason = derive_parameters(make(signature, future))
    assert derived["properties"] == properties
    assert list(derived["properties"]) == list(properties)
    assert derived["required"] == required
    assert (strict, strict_reason) == (not reason, reason)
    assert derived["type"] == "object"
    assert derived.get("$defs", {}) == {name: DEFS[name] for name in derived.get("$defs", {})}
    named = set(re.findall(r"#/\$defs/(\w+)", json.dumps(derived, allow_nan=False)))
    assert named == set(derived.get("$defs", {}))
    if "**" not in signature:
        assert derived["additionalProperties"] is False


def test_there_are_enough_signatures():
    assert len({case[0] for case in CASES}) + len(REFUSED_TYPES) + len(BY_REFERENCE) >= 150


def test_rest_parameters_open_the_object():
    assert derive_parameters(make("x: str, **rest"))[0]["additionalProperties"] is True
    derived = derive_parameters(make("x: str, **rest: int"))[0]
    assert derived["additionalProperties"] == {"type": "integer"}


@pytest.mark.parametrize("future", [False, True], ids=["objects", "strings"])
@pytest.mark.parametrize(("signature", "kind", "detail"), REFUSED_TYPES)
def test_type_without_json_form_is_refused(signature, kind, detail, future):
    message = refusal(make(signature, future))
    expected = f"f: parameter 'x' has the type {kind}, which a model cannot send as JSON{detail}"
    assert message == expected + WAY_OUT


@pytest.mark.parametrize("future", [False, True], ids=["objects", "strings"])
@pytest.mark.parametrize(("signature", "kind"), BY_REFERENCE)
def test_an_object_is_asked_for_by_handle(signature, kind, future):
    schema, strict, _ = derive_parameters(make(signature, future))
    words = f"a handle, such as @r7, of a kept {kind}"
    assert schema["properties"] == {
        "x": {"type": "string", "format": "handle", "description": words}
    }
    assert strict


def test_handles_stand_inside_other_types_too():
    fn = make(
        "a: int, x: list[pd.DataFrame], y: pd.Series | None = None, **rest: pd.DataFrame",
        doc="Do.\n\nArgs:\n    x: the tables.\n",
    )
    schema = derive_parameters(fn)[0]
    frame = {
        "type": "string",
        "format": "handle",
        "description": "a handle, such as @r7, of a kept pandas.DataFrame",
    }
    series = {**frame, "description": frame["description"].replace("DataFrame", "Series")}
    assert schema["properties"]["x"] == {
        "type": "array",
        "items": frame,
        "description": "the tables.",
    }
    assert schema["properties"]["y"]["anyOf"] == [series, {"type": "null"}]
    assert schema["additionalProperties"] == frame


@pytest.mark.parametrize("signature", ["*names", "*names: str", "a: int, *names: pd.DataFrame"])
def test_star_arguments_are_refused(signature):
    assert refusal(make(signature)) == (
        "f: *names cannot be filled by a model, which passes arguments by name; take a list "
        "parameter instead, such as names: list[str]."
    )


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ('x: "Missing"', "name 'Missing' is not defined"),
        ('x: "pd.Missing"', "module 'pandas' has no attribute 'Missing'"),
        ('x: list["Missing"]', "name 'Missing' is not defined"),
        ('x: "the path"', "Forward reference must be an expression -- got 'the path'"),
    ],
)
def test_unknown_name_is_refused(signature, why):
    annotation = eval(signature.removeprefix("x: "))
    assert refusal(make(signature)) == (
        f"f: the annotation {annotation!r} of parameter 'x' cannot be resolved ({why}); define or "
        "import that name at module level, or write the class itself instead of a string."
    )


def test_unpacked_typed_dict_is_refused():
    assert "write the keys as parameters of their own" in refusal(
        make("**rest: typing.Unpack[Filter]")
    )


def test_enum_without_json_values_is_refused():
    class Odd(enum.Enum):
        ONE = object()

    def f(x: Odd): ...

    assert "'x' has the type" in refusal(f)


def test_callable_without_signature_is_refused():
    assert refusal(max) == (
        "max has no readable signature; wrap it in a function with annotated parameters."
    )


def test_names_of_closures_are_found():
    @dataclass
    class Local:
        size: int

    def f(x: "list[Local]", y: "Local | None" = None):
        return Local

    derived, strict, _ = derive_parameters(f)
    assert strict
    assert derived["properties"]["x"] == {"type": "array", "items": {"$ref": "#/$defs/Local"}}
    assert ArgumentBinder(f).bind_json('{"x": [{"size": 2}]}')[1]["x"] == [Local(2)]


def test_local_class_as_an_object_needs_no_name():
    class Local(BaseModel):
        size: int

    def f(x: Local): ...

    assert ArgumentBinder(f).bind_json('{"x": {"size": 2}}')[1]["x"] == Local(size=2)


def test_methods_partials_wrappers_and_objects_have_signatures():
    class Store:
        def get(self, key: "Row", count: int = 1): ...

        def __call__(self, key: "Color"): ...

    @functools.wraps(Store.get)
    def wrapper(*args, **kwargs): ...

    assert list(derive_parameters(Store().get)[0]["properties"]) == ["key", "count"]
    assert list(derive_parameters(Store())[0]["properties"]) == ["key"]
    assert list(derive_parameters(functools.partial(wrapper, None))[0]["properties"]) == [
        "key",
        "count",
    ]
    derived = derive_parameters(functools.partial(Store().get, count=5))[0]
    assert derived["properties"]["count"] == {"type": "integer", "default": 5}
    assert derived["required"] == ["key"]
    assert list(derive_parameters(Row)[0]["properties"]) == ["name", "price"]
    assert derive_parameters(math.sqrt)[0]["required"] == ["x"]


def test_async_functions_are_described_alike():
    async def f(x: int, y: Path = Path()): ...

    assert derive_parameters(f)[0]["required"] == ["x"]


@pytest.mark.parametrize("future", [False, True])
def test_context_parameter(future):
    assert context_parameter(make("x: int, ctx: ToolContext | None = None", future)) == "ctx"
    assert context_parameter(make("c: Optional[context.ToolContext], x: int", future)) == "c"
    assert context_parameter(make("x: int, ctx: int", future)) is None


def test_context_imported_for_type_checkers_only():
    def f(x: int, ctx: "dispatch.ToolContext | None" = None): ...  # noqa: F821

    assert context_parameter(f) == "ctx"
    assert list(derive_parameters(f)[0]["properties"]) == ["x"]


def test_docstring_describes_parameters_and_annotations_win():
    doc = "Do it.\n\nArgs:\n    x: from the docstring.\n    y: also.\n    **rest: more."
    derived, _, _ = derive_parameters(
        make("x: int, y: Annotated[Path, Field(description='own')], z: Color, **rest", doc=doc)
    )
    assert derived["properties"]["x"]["description"] == "from the docstring."
    assert derived["properties"]["y"]["description"] == "own"
    assert "description" not in derived["properties"]["z"]
    derived, _, _ = derive_parameters(make("x: Annotated[int, 'short']", doc=doc))
    assert derived["properties"]["x"] == {"type": "integer", "description": "short"}


def test_alias_gets_its_parameters_description():
    doc = "Do it.\n\nArgs:\n    x: where from."
    derived, _, _ = derive_parameters(make('x: Annotated[str, Field(alias="from")]', doc=doc))
    assert derived["properties"]["from"] == {"type": "string", "description": "where from."}


def run_fresh(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that finds this package."""
    root = Path(schema.__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root
    )


@pytest.mark.soak
def test_no_pydantic_for_simple_signatures():
    code = (
        "import sys, agent_magics.dispatch.results.output\n"
        "from agent_magics.dispatch.arguments import decoding as arguments\n"
        "from agent_magics.dispatch.schema import generation as schema\n"
        "assert not {'pydantic', 'pydantic_core'} & set(sys.modules)\n"
        "def f(x: str, y: list[int] = [], z: str | None = None): ...\n"
        'arguments.ArgumentBinder(f).bind_json(\'{"x": "a"}\')\n'
        "schema.derive_parameters(f)\n"
        "assert 'pydantic' not in sys.modules\n"
    )
    done = run_fresh(code)
    assert done.stderr == ""


SIMPLE = [
    case[0] for case in CASES if schema._describe_simple(read_parameters(make(case[0]))) is not None
]
VALUES = ["a", "5", 5, 5.0, 5.5, True, None, [], ["a"], [1, "2"], [["1.5"]], [None], {}, "true", 1]


@pytest.mark.parametrize("signature", SIMPLE)
def test_simple_way_equals_pydantic(signature):
    fn = make(signature)
    parameters = read_parameters(fn)
    by_pydantic = schema._describe_with_pydantic(fn, parameters)
    simple = schema._describe_simple(parameters)
    assert simple is not None
    assert simple[1] == by_pydantic[1]
    validators = [
        SchemaValidator(core, config=arguments._CORE_CONFIG) for core in (simple[0], by_pydantic[0])
    ]
    for value in VALUES:
        text = json.dumps({"x": value})
        outcomes = []
        for validator in validators:
            try:
                outcomes.append(repr(validator.validate_json(text)))
            except ValueError as error:
                outcomes.append([(e["type"], e["msg"]) for e in error.errors()])
        assert outcomes[0] == outcomes[1]


def test_simple_signatures_are_many():
    assert len(SIMPLE) >= 40


# -- what arrives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "text", "value"),
    [
        ("x: int", '"5"', 5),
        ("x: int", "500.0", 500),
        ("x: bool", '"true"', True),
        ("x: bool", "0", False),
        ("x: float", '"1e3"', 1000.0),
        ("x: str", "5", "5"),
        ("x: str", "1.5", "1.5"),
        ("x: list[str]", "[1]", ["1"]),
        ("x: int | str", '"5"', "5"),
        ("x: int | str", "5", 5),
        ("x: Any", '{"a": [1]}', {"a": [1]}),
        ("x", "null", None),
        ("x: Color", '"red"', Color.RED),
        ("x: Level", "2", Level.HIGH),
        ("x: Level", '"2"', Level.HIGH),
        ("x: Mode", '"read"', Mode.READ),
        ("x: list[Color]", '["red", "blue"]', [Color.RED, Color.BLUE]),
        ("x: dict[Color, int]", '{"red": 1}', {Color.RED: 1}),
        ("x: dict[int, str]", '{"1": "a"}', {1: "a"}),
        ("x: Moment", '"2024-03-01T10:00:00"', Moment(2024, 3, 1, 10)),
        ("x: date", '"2024-03-01"', date(2024, 3, 1)),
        ("x: datetime.time", '"10:30"', datetime.time(10, 30)),
        ("x: timedelta", '"PT1H"', timedelta(hours=1)),
        ("x: timedelta", "90", timedelta(seconds=90)),
        ("x: Path", '"a/b"', Path("a/b")),
        ("x: Decimal", '"0.10"', Decimal("0.10")),
        ("x: uuid.UUID", '"00000000-0000-0000-0000-000000000001"', uuid.UUID(int=1)),
        ("x: complex", '"1+2j"', 1 + 2j),
        ("x: pydantic.Base64Bytes", '"YWJj"', b"abc"),
        ("x: tuple[int, str]", '[1, "a"]', (1, "a")),
        ("x: tuple[int, ...]", "[1, 2]", (1, 2)),
        ("x: set[str]", '["a", "a"]', {"a"}),
        ("x: frozenset[int]", "[1]", frozenset({1})),
        ("x: Iterable[int]", '[1, "2"]', [1, 2]),
        ("x: Sequence[int]", "[1]", [1]),
        ("x: Literal[1, 2]", "2", 2),
        ("x: Row", '{"name": 5}', Row("5")),
        ("x: Order", '{"rows": [{"name": "a"}]}', Order([Row("a")], {})),
        ("x: Filter", '{"column": "a"}', {"column": "a"}),
        ("x: list[Filter]", '[{"column": "a", "value": "3"}]', [{"column": "a", "value": 3}]),
        ("x: Point", "[1]", Point(1.0, 0.0)),
        ("x: Point", '{"x": 1, "y": 2}', Point(1.0, 2.0)),
        ("x: Person", '{"name": "a"}', Person(name="a")),
        (
            "x: Node",
            '{"value": 1, "children": [{"value": 2}]}',
            Node(value=1, children=[Node(value=2)]),
        ),
        ("x: Pet", '{"kind": "dog"}', Dog(kind="dog")),
        ("x: Person | Row", '{"name": "a", "price": 2}', Row("a", 2.0)),
        ("x: Annotated[int, Field(le=3)] | None", "3", 3),
        ("x: UserId", "3", 3),
    ],
)
def test_value_arrives(signature, text, value):
    arrived = bound(signature, f'{{"x": {text}}}')
    assert arrived == value
    assert type(arrived) is type(value)
    given = ArgumentBinder(make(signature)).bind({"x": json.loads(text)})[1]["x"]
    assert given == value


def test_defaults_arrive_and_mutable_ones_are_not_shared():
    binder = ArgumentBinder(make("x: list[int] = [], y=MISSING, z: int = np.int64(3)"))
    first, second = binder.bind_json("{}")[1], binder.bind_json("")[1]
    first["x"].append(1)
    assert second["x"] == []
    assert second["y"] is MISSING
    assert type(second["z"]) is np.int64


def test_positional_only_parameters_are_placed():
    def f(a: int, b: str = "b", /, c: int = 0, *, d: int = 1):
        return (a, b, c, d)

    args, named = ArgumentBinder(f).bind_json('{"d": 4, "a": 1}')
    assert (args, named) == ((1, "b"), {"c": 0, "d": 4})
    assert f(*args, **named) == (1, "b", 0, 4)
    assert ArgumentBinder(f).bind({"a": 1, "b": "x"})[0] == (1, "x")


def test_alias_arrives_under_the_parameters_name():
    assert bound('x: Annotated[str, Field(alias="from")]', '{"from": "a"}') == "a"


def test_rest_arrives_by_name():
    _, named = ArgumentBinder(make("x: int, **rest: int")).bind_json('{"x": 1, "q": "2"}')
    assert named == {"x": 1, "q": 2}


def test_context_is_not_filled_by_the_model():
    fn = make("x: int, ctx: ToolContext | None = None")
    assert ArgumentBinder(fn).bind_json('{"x": 1}') == ((), {"x": 1})
    assert complaint(fn, '{"x": 1, "ctx": {}}') == "ctx: not a parameter of f; it takes: x"


@pytest.mark.parametrize("text", ["", "  ", "{}", " {}\n"])
def test_empty_arguments(text):
    assert ArgumentBinder(make("")).bind_json(text) == ((), {})


def test_last_of_equal_keys_wins():
    assert bound("x: int", '{"x": 1, "x": 2}') == 2


def test_any_mapping_binds():
    chain = collections.ChainMap({"x": "1"}, {"y": 2})
    assert ArgumentBinder(make("x: int, y: int")).bind(chain) == ((), {"x": 1, "y": 2})


def test_null_with_default_is_absent_only_where_it_was_refused():
    fn = make("x: int = 1, y: int | None = 2, rows: list[Row] = []")
    _, named = ArgumentBinder(fn).bind_json(
        '{"x": null, "y": null, "rows": [{"name": "a", "price": null}]}'
    )
    assert named == {"x": 1, "y": None, "rows": [Row("a")]}
    given = {"x": None, "rows": [{"name": "a", "price": None}]}
    assert ArgumentBinder(fn).bind(given)[1]["rows"] == [Row("a")]
    assert given == {"x": None, "rows": [{"name": "a", "price": None}]}


def test_bind_refuses_an_unusable_function_with_the_persons_error():
    with pytest.raises(FatalError, match=r"^f: parameter 'x' has the type collections"):
        ArgumentBinder(make("x: Callable")).bind_json('{"x": 1}')


class Kept:
    """Results by name, as a conversation keeps them."""

    def __init__(self, **values: Any) -> None:
        self.values = {f"@{name}": value for name, value in values.items()}

    def __call__(self, name: str) -> Any:
        if name not in self.values:
            raise RespondToModel(f"There is no {name}.")
        return self.values[name]


def test_the_object_itself_arrives_where_no_text_is_asked_for():
    frame, numbers = pd.DataFrame({"a": [1]}), [1.0, 2.0]
    fn = make(
        "df: pd.DataFrame, many: list[pd.DataFrame], xs: list[float], one: Any, free, "
        "either: pd.DataFrame | str, named: dict[str, Any], path: Path, text: str, "
        "choice: Literal['@r1'], other: str | None = None"
    )
    text = (
        '{"df": "@r1", "many": ["@r1"], "xs": "@r2", "one": "@r1", "free": "@r2", '
        '"either": "@r1", "named": {"k": "@r1"}, "path": "@r1", "text": "@r1", '
        '"choice": "@r1", "other": "@r1"}'
    )
    _, named = ArgumentBinder(fn).bind_json(text, Kept(r1=frame, r2=numbers))
    assert named["df"] is named["many"][0] is named["one"] is named["either"] is frame
    assert named["named"]["k"] is frame
    assert named["xs"] is named["free"] is numbers
    assert named["path"] == Path("@r1")
    assert named["text"] == named["other"] == named["choice"] == "@r1"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"df": "@r2"}', "df: {wanted}, got @r2, a list, 2 elements, "),
        ('{"df": "sales"}', "df: {wanted}, got 'sales' (string)"),
        ('{"df": {"a": [1]}}', 'df: {wanted}, got {{"a": [1]}} (object)'),
        ('{"df": "@r1", "many": ["@r2"]}', "many[0]: {wanted}, got @r2, a list, 2 elements"),
        ('{"df": "@r9"}', "There is no @r9."),
        ("{}", "df: expected a handle such as @r7, got nothing (required)"),
    ],
)
def test_another_object_is_refused_in_a_sentence(arguments, told):
    fn = make("df: pd.DataFrame, many: list[pd.DataFrame] = []")
    with pytest.raises(RespondToModel) as caught:
        ArgumentBinder(fn).bind_json(arguments, Kept(r1=pd.DataFrame(), r2=[1, 2]))
    wanted = "expected a handle of a kept pandas.DataFrame, such as @r7"
    assert str(caught.value).startswith(told.format(wanted=wanted))


def test_a_refused_object_is_not_asked_to_show_itself():
    class Hostile:
        def __repr__(self):
            raise AssertionError("nobody may ask for it")

    with pytest.raises(RespondToModel, match=r"got @r1, a .*Hostile$"):
        ArgumentBinder(make("df: pd.DataFrame")).bind_json('{"df": "@r1"}', Kept(r1=Hostile()))


def test_what_only_looks_like_a_handle_stays_text():
    fn = make("x: Any, y: list[str]")
    _, named = ArgumentBinder(fn).bind_json('{"x": "@r7", "y": ["@r7"]}', Kept(r1="kept"))
    assert named == {"x": "@r7", "y": ["@r7"]}


def test_error_of_a_models_own_validator_is_told():
    class Even(BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            if n % 2:
                raise ValueError("must be even")
            return n

    def f(x: Even): ...

    assert complaint(f, '{"x": {"n": 3}}') == "x.n: must be even, got 3 (number)"


# -- what does not fit ----------------------------------------------------------------------------

REVENUE = (
    "month: str, limit: Annotated[int, Field(ge=1, le=1000)] = 100, rows: list[Row] = [], "
    "when: date | None = None, mode: Literal['a', 'b'] = 'a', some: int | list[int] = 1"
)
TAKES = "it takes: month, limit, rows, when, mode, some"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('{"month": "a", "limit": "x"}', ["limit: expected an integer, got 'x' (string)"]),
        ('{"month": "a", "limit": 1.5}', ["limit: expected an integer, got 1.5 (number)"]),
        ('{"month": "a", "limit": 0}', ["limit: expected a number >= 1, got 0 (number)"]),
        ('{"month": "a", "limit": 1001}', ["limit: expected a number <= 1000, got 1001 (number)"]),
        ("{}", ["month: expected a string, got nothing (required)"]),
        ('{"month": null}', ["month: expected a string, got null"]),
        ('{"month": null, "limit": null}', ["month: expected a string, got null"]),
        ('{"month": true}', ["month: expected a string, got true (boolean)"]),
        ('{"month": ["a"]}', ['month: expected a string, got ["a"] (array)']),
        ('{"month": {"a": 1}}', ['month: expected a string, got {"a": 1} (object)']),
        ('{"month": "a", "q": 1}', [f"q: not a parameter of f; {TAKES}"]),
        (
            '{"mnth": "a"}',
            [
                "month: expected a string, got nothing (required)",
                f"mnth: not a parameter of f (did you mean 'month'?); {TAKES}",
            ],
        ),
        ('{"month": "a", "mode": "c"}', ["mode: expected 'a' or 'b', got 'c' (string)"]),
        (
            '{"month": "a", "when": "soon"}',
            ["when: expected a date such as 2024-03-31, got 'soon' (string)"],
        ),
        (
            '{"month": "a", "some": "x"}',
            ["some: expected an integer or an array, got 'x' (string)"],
        ),
        ('{"month": "a", "rows": {}}', ["rows: expected an array, got {} (object)"]),
        (
            '{"month": "a", "rows": [{"name": "b"}, {"name": [], "price": "x", "cost": 3}, {}, 4]}',
            [
                "rows[1].name: expected a string, got [] (array)",
                "rows[1].price: expected a number, got 'x' (string)",
                "rows[1].cost: not a field of this object; it takes: name, price",
                "rows[2].name: expected a string, got nothing (required)",
                "rows[3]: expected an object, got 4 (number)",
            ],
        ),
        (
            '{"limit": "x", "mode": 3, "rows": null}',
            [
                "month: expected a string, got nothing (required)",
                "limit: expected an integer, got 'x' (string)",
                "mode: expected 'a' or 'b', got 3 (number)",
            ],
        ),
    ],
)
def test_all_problems_are_told(text, lines):
    assert complaint(make(REVENUE), text).split("\n") == lines


@pytest.mark.parametrize(
    ("signature", "value", "line"),
    [
        ("x: bool", '"maybe"', "x: expected true or false, got 'maybe' (string)"),
        ("x: float", '"much"', "x: expected a number, got 'much' (string)"),
        ("x: Color", '"green"', "x: expected 'red' or 'blue', got 'green' (string)"),
        ("x: Path", "[]", "x: expected a path, got [] (array)"),
        (
            "x: Moment",
            '"x"',
            "x: expected a date and time such as 2024-03-31T12:00:00, got 'x' (string)",
        ),
        ("x: datetime.time", '"x"', "x: expected a time such as 12:30:00, got 'x' (string)"),
        ("x: timedelta", '"x"', "x: expected a duration such as PT1H30M, got 'x' (string)"),
        ("x: uuid.UUID", '"x"', "x: expected a UUID, got 'x' (string)"),
        ("x: Decimal", '"x"', "x: expected a decimal number, got 'x' (string)"),
        (
            "x: Annotated[str, Field(min_length=2)]",
            '"a"',
            "x: expected a string of at least 2 characters, got 'a' (string)",
        ),
        (
            "x: Annotated[list[int], Field(min_length=1)]",
            "[]",
            "x: expected at least 1 elements, got [] (array)",
        ),
        (
            "x: Annotated[str, Field(pattern='^a$')]",
            '"b"',
            "x: expected a string matching ^a$, got 'b' (string)",
        ),
        ("x: dict[int, str]", '{"a": "b"}', "x.key 'a': expected an integer, got 'a' (string)"),
        ("x: dict[str, int]", '{"a": "b"}', "x.a: expected an integer, got 'b' (string)"),
        ("x: Filter", "{}", "x.column: expected a string, got nothing (required)"),
        ("x: Filter", '"a"', "x: expected an object, got 'a' (string)"),
        ("x: int", '"' + "9" * 80 + 'x"', f"x: expected an integer, got '{'9' * 58}… (string)"),
        ("x: None", "1", "x: expected null, got 1 (number)"),
    ],
)
def test_problem_is_told_in_plain_words(signature, value, line):
    assert complaint(make(signature), f'{{"x": {value}}}') == line


def test_problems_of_a_union_say_which_member():
    assert complaint(make("x: Person | Row"), '{"x": {"price": 1}}').split("\n") == [
        "x.name (as Person): expected a string, got nothing (required)",
        "x.name (as Row): expected a string, got nothing (required)",
    ]


def test_many_problems_are_counted():
    lines = complaint(make("x: list[int]"), json.dumps({"x": ["a"] * 100})).split("\n")
    assert len(lines) == 31
    assert lines[-1] == "… and 70 more problems"


def test_missing_words_come_from_the_schema():
    fn = make("a: Color, b: int | None, c: list[int], d: Moment, e, g: bool, h: dict, i: Point")
    assert complaint(fn, "{}").split("\n") == [
        "a: expected 'red' or 'blue', got nothing (required)",
        "b: expected an integer or null, got nothing (required)",
        "c: expected an array, got nothing (required)",
        "d: expected a date and time such as 2024-03-31T12:00:00, got nothing (required)",
        "e: expected a value, got nothing (required)",
        "g: expected true or false, got nothing (required)",
        "h: expected an object, got nothing (required)",
        "i: expected an array, got nothing (required)",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"x": "a',
            "The arguments of f are cut short: EOF while parsing a string at line 1, column 8 "
            '(character 8): {"x": "a<HERE>',
        ),
        (
            '{"x": "é",\n"y": 3',
            "The arguments of f are cut short: EOF while parsing an object at line 2, column 6 "
            '(character 17): {"x": "é",\n"y": 3<HERE>',
        ),
        (
            '{"x": é}',
            "The arguments of f are not valid JSON: expected value at line 1, column 6 "
            '(character 6): {"x": <HERE>é}',
        ),
        (
            '{"x": 1} and so on',
            "The arguments of f are not valid JSON: trailing characters at line 1, column 10 "
            '(character 10): {"x": 1} a<HERE>nd so on',
        ),
    ],
)
def test_broken_json_is_told_with_its_place(text, message):
    end = "\nNothing was run; send the whole arguments again."
    assert complaint(make("x: str"), text) == message + end


@pytest.mark.parametrize(
    ("text", "shown"),
    [("[1]", "[1] (array)"), ("[]", "[] (array)"), ('"x"', "'x' (string)"), (" null", "null")],
)
def test_json_that_is_no_object_is_named(text, shown):
    assert complaint(make(""), text) == (
        f"The arguments of f must be one JSON object, got {shown}. "
        "Nothing was run; send them again as an object of names and values."
    )


def test_half_characters_are_told():
    assert "half a character" in complaint(make("x: str"), '{"x": "\ud800"}')


def test_deep_nesting_is_told():
    assert "recursion limit exceeded" in complaint(make("x"), '{"x":' + "[" * 5000)


def test_messages_use_the_tools_name():
    with pytest.raises(RespondToModel, match=r"^q: not a parameter of revenue; it takes: nothing$"):
        ArgumentBinder(make(""), "revenue").bind_json('{"q": 1}')


# -- properties -----------------------------------------------------------------------------------

TYPED_VALUES = st.fixed_dictionaries(
    {
        "text": st.text(st.characters(codec="utf-8")),
        "count": st.integers(),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "words": st.lists(st.text(st.characters(codec="utf-8"))),
        "table": st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers()),
        "when": st.datetimes(),
        "color": st.sampled_from(Color),
        "maybe": st.none() | st.integers(),
    }
)
TYPED = ArgumentBinder(
    make(
        "text: str, count: int, share: float, flag: bool, words: list[str], "
        "table: dict[str, int], when: Moment, color: Color, maybe: int | None"
    )
)


@settings(deadline=None)  # the machine may be busy
@given(TYPED_VALUES)
def test_values_come_back_from_their_json(values):
    encoded = {**values, "when": values["when"].isoformat(), "color": values["color"].value}
    assert TYPED.bind_json(json.dumps(encoded)) == ((), values)
    assert TYPED.bind(encoded) == ((), values)


@settings(deadline=None)  # the machine may be busy
@given(st.text() | st.text(alphabet='{}[]":,1ntea\\u0 \n'))
def test_any_text_binds_or_is_told(text):
    binder = ArgumentBinder(make("x: int = 1"))
    told = ""
    try:
        outcome = binder.bind_json(text)
    except RespondToModel as error:
        told, outcome = str(error), None
    assert told or (outcome is not None and type(outcome[1]["x"]) is int)


ALIASES = """
type Number = int
type Array = np.ndarray
type Backwards[K, V] = dict[V, K]
type Json = dict[str, Json] | list[Json] | str
def f(number: Number, all: list[Number], array: Array, pairs: Backwards[int, str], json: Json): ...
"""


@pytest.mark.needs("python 3.12")
def test_an_alias_is_written_as_what_it_stands_for():
    names: dict[str, typing.Any] = {"np": np}
    exec(ALIASES, names)
    schema, _, _ = derive_parameters(names["f"])
    number = {"type": "integer"}
    assert schema["properties"]["number"] == number
    assert schema["properties"]["all"] == {"type": "array", "items": number}
    assert schema["properties"]["array"]["format"] == "handle"
    assert schema["properties"]["pairs"] == {"type": "object", "additionalProperties": number}
    assert schema["properties"]["json"] == {"$ref": "#/$defs/Json"}
    assert schema["$defs"].keys() == {"Json"}
