"""What a value is and takes, told without asking the value."""

import cProfile
import io
import pstats
import sys
import types

import numpy
import pandas
import pytest

from agent_magics.dispatch.results.values import (
    describe_value,
    estimate_size,
    format_size,
    kind_of,
    own_attributes,
    short_value,
)


class Wild(type):
    """A class of classes that answers nothing."""

    def __getattribute__(cls, name):
        raise AssertionError(name)


class Strange(list, metaclass=Wild):
    """A list that answers nothing."""

    def __len__(self):
        raise AssertionError("nobody may ask")

    __iter__ = __repr__ = __eq__ = __getitem__ = __sizeof__ = __len__
    __hash__ = None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "NoneType"),
        (5, "int"),
        ("abc", "str, 3 characters"),
        (b"ab", "bytes, 2 bytes"),
        ({"a": 1}, "dict, 1 element, 185 bytes"),
        ({1, 2}, "set, 2 elements, 144 bytes"),
        (io.StringIO("x"), "_io.StringIO"),
    ],
)
def test_plain_values(value, words):
    assert describe_value(value) == words


def test_a_builtin_s_subclass_is_asked_through_the_builtin():
    strange = Strange([1, 2, 3])
    assert describe_value(strange).partition(", ")[2] == "3 elements, 184 bytes"
    assert kind_of(strange) == "data"
    assert short_value(strange) == ""


def test_sizes_are_estimated_from_a_sample():
    assert 1_000_000 < estimate_size(["x" * 100] * 10_000) < 1_200_000
    assert estimate_size({"k": [b"x" * 1_000]}) > 1_000
    holder = types.SimpleNamespace(held="x" * 5_000)
    assert estimate_size(holder) > 5_000
    endless: list[object] = []
    endless.append(endless)
    assert estimate_size(endless) < 1_000


def test_libraries_count_for_themselves():
    assert estimate_size(numpy.zeros(1_000)) == 8_000
    assert describe_value(numpy.zeros((2, 3))) == "numpy.ndarray, shape (2, 3), float64, 48 bytes"
    frame = pandas.DataFrame({f"c{n}": [1.0] for n in range(30)})
    words = describe_value(frame)
    assert "c19 float64, … 10 more)" in words
    assert [kind_of(v) for v in (frame, frame["c0"], numpy.zeros(1))] == [
        "frame",
        "series",
        "array",
    ]


def test_a_frame_of_many_columns_is_measured_by_a_part_of_them():
    frame = pandas.DataFrame(numpy.zeros((3, 20_000)))
    assert estimate_size(frame) == pytest.approx(3 * 20_000 * 8, rel=0.3)
    with cProfile.Profile() as profile:
        estimate_size(frame)
    assert pstats.Stats(profile).total_calls < 50_000  # 1,100,000 with all of them


def test_lazy_values_are_left_alone():
    lazy = type("LazyFrame", (), {"__module__": "polars.lazyframe.frame"})()
    assert describe_value(lazy) == "polars.LazyFrame, not computed"
    assert kind_of(lazy) == "lazy"


def test_kinds():
    assert [kind_of(v) for v in (sys, print, len, str, int.__add__, [].append)] == [
        "module",
        "function",
        "function",
        "class",
        "function",
        "function",
    ]


def test_only_what_is_short_and_plain_is_shown():
    assert [short_value(v) for v in (5, 1.5, None, "a'b", 10**100, [1])] == [
        "5",
        "1.5",
        "None",
        '"a\'b"',
        "",
        "",
    ]
    assert short_value("x" * 100) == repr("x" * 60) + "…"


def test_attributes_are_read_as_they_are_stored():
    class Hides:
        def __init__(self):
            self.a = 1

        __dict__ = property(lambda self: pytest.fail("nobody may ask"))

    assert own_attributes(Hides()) == {}
    assert own_attributes(types.SimpleNamespace(a=1)) == {"a": 1}
    assert own_attributes(sys) == own_attributes(str) == own_attributes(5) == {}


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1 kB"), (1_234_567, "1.23 MB"),
     (999_600, "1 MB"), (12_500_000_000, "12.5 GB"), (5 * 10**12, "5,000 GB")],
)  # fmt: skip
def test_sizes_as_people_write_them(size, words):
    assert format_size(size) == words
