"""The names that the signatures of `signature_corpus.txt` use: what people import, and own."""

# ruff: noqa: F401, UP035 - the names are used by the signatures, old spellings on purpose
import abc
import asyncio
import enum
import io
import logging
import os
import re
import sqlite3
import threading
import types
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path, PosixPath, PurePath
from typing import (
    Annotated,
    Any,
    BinaryIO,
    ClassVar,
    Dict,
    Final,
    List,
    Literal,
    LiteralString,
    NamedTuple,
    NewType,
    NoReturn,
    NotRequired,
    Optional,
    Protocol,
    Required,
    TextIO,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
)
from uuid import UUID
from zoneinfo import ZoneInfo

import matplotlib.figure
import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import (
    AwareDatetime,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ByteSize,
    DirectoryPath,
    Field,
    FilePath,
    HttpUrl,
    Json,
    NonNegativeFloat,
    PastDate,
    PositiveInt,
    SecretStr,
    StringConstraints,
    conint,
    constr,
)

from agent_magics import ToolContext

Figure = matplotlib.figure.Figure
Connection = sqlite3.Connection
UserId = NewType("UserId", int)
Alias = dict[str, list[int]]
T = TypeVar("T")
TypeVarT = T


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class StrColor(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flags(enum.Flag):
    A = 1
    B = 2


@dataclass
class Point:
    """A point."""

    x: int
    y: int = 0


@dataclass(frozen=True)
class Frozen:
    tags: tuple[str, ...]


@dataclass
class WithDefaults:
    items: list[int] = field(default_factory=list)
    color: Color = Color.RED


@dataclass
class Tree:
    value: int
    children: "list[Tree]"


class User(BaseModel):
    name: str = Field(description="Who.")
    age: int | None = Field(None, ge=0)


class Nested(BaseModel):
    user: User
    points: list[Point]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


Shape = Point | User
Discriminated = Annotated[Cat | Dog, Field(discriminator="kind")]


class Movie(TypedDict):
    title: str
    year: int


class PartialMovie(TypedDict, total=False):
    title: str


class RequiredMovie(TypedDict):
    title: Required[str]
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = ""


Record = namedtuple("Record", ["a", "b"])


class Box(BaseModel, typing.Generic[T]):
    inside: T


class Plain:
    def __init__(self, x: int) -> None:
        self.x = x


class Proto(Protocol):
    def run(self) -> None: ...


class Abstract(abc.ABC):
    @abc.abstractmethod
    def run(self) -> None: ...
