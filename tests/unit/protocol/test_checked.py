from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest

from agent_magics.protocol.checked import check, checked, plain_number
from agent_magics.protocol.errors import FatalError


@dataclass
class Budget:
    tokens: int | None = None


FITS = [
    (5, int),
    (5, float),
    (np.int64(5), int),
    (np.float32(1.5), float),
    (1.5, float | None),
    (None, float | None),
    (True, bool),
    ("x", str),
    ("up", Literal["up", "down"]),
    (["x"], Sequence[str]),
    (("x",), Sequence[str] | None),
    ([object()], Sequence),
    ({"a": 1}, Mapping),
    ({"a": 1}, Mapping[str, Any]),
    (len, Callable[[Any], Any]),
    (Budget(5), Budget),
    (object(), Any),
    (object(), "a type of a module that is imported late"),
]
DOES_NOT_FIT = [
    ("5", int, "'5' does not fit; it takes a whole number"),
    (True, int, "True does not fit; it takes a whole number"),
    (True, float, "True does not fit; it takes a number"),
    (1, bool, "1 does not fit; it takes True or False"),
    (b"x", str, "b'x' does not fit; it takes text"),
    (None, str, "None does not fit; it takes text"),
    ("x", int | None, "'x' does not fit; it takes a whole number or None"),
    ("read_file", Sequence[str], "'read_file' does not fit; it takes a list of text"),
    ([5], Sequence[str], "[5] does not fit; it takes a list of text"),
    ("x", Literal["up", "down"], "'x' does not fit; it takes 'up' or 'down'"),
    (
        np.array(["up", "up"]),
        Literal["up"],
        "array(['up', 'up'], dtype='<U2') does not fit; it takes 'up'",
    ),
    ("x", Sequence, "'x' does not fit; it takes a list"),
    ([], Mapping[str, Any], "[] does not fit; it takes a dict"),
    (5, Callable[[Any], Any], "5 does not fit; it takes a function"),
    ({}, Budget | None, "{} does not fit; it takes Budget or None"),
    (Budget("x"), Budget, "Budget(tokens='x') does not fit; it takes Budget"),
]


@pytest.mark.parametrize(("value", "kind"), FITS)
def test_what_fits_passes(value, kind):
    check("it", value, kind)


@pytest.mark.parametrize(("value", "kind", "problem"), DOES_NOT_FIT)
def test_what_does_not_fit_is_told_in_one_sentence(value, kind, problem):
    with pytest.raises(FatalError) as refused:
        check("it", value, kind)
    assert str(refused.value) == f"it={problem}."


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(5), 5),
        (np.float32(1.5), 1.5),
        (np.float64(1.5), 1.5),
        (Fraction(1, 2), 0.5),
        (True, True),
        (1 << 80, 1 << 80),
        ("5", "5"),
        (None, None),
    ],
)
def test_numbers_of_another_library_become_plain(value, plain):
    made = plain_number(value)
    assert made == plain and isinstance(made, type(plain))


def test_a_long_value_is_shortened():
    with pytest.raises(FatalError) as refused:
        check("it", ["x" * 10_000], int)
    assert len(str(refused.value)) < 200


@checked
def turns(of, count: int = 1, *, name: str = "") -> tuple:
    return of, count, name


def test_a_checked_function_names_itself_and_its_argument():
    assert turns([], 2, name="x") == ([], 2, "x")
    with pytest.raises(FatalError, match="turns: count='2' does not fit"):
        turns([], "2")
    with pytest.raises(FatalError, match="turns: name=5 does not fit"):
        turns([], name=5)


def test_what_is_missing_or_too_much_is_told_by_python():
    with pytest.raises(TypeError, match="nmae"):
        turns([], nmae="x")
    with pytest.raises(TypeError, match="of"):
        turns()
