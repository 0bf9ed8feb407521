"""Prompts of rows: columns, missing values, and what cannot be sent."""

import datetime
import decimal
import enum
import functools
import itertools
import json
import math
import os
import subprocess
import sys
import types
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import PIL.Image
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.rows.prompts import (
    TOO_LONG,
    BadRow,
    Template,
    asked_row,
    digest_of,
    identity_of,
    read_prompt,
)


class Colour(enum.Enum):
    RED = "red"


PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_columns_stand_where_the_text_names_them():
    prompt = read_prompt("{{ b }}-{{a}}-{{b}}", ["a", "b"])
    assert prompt.names == ("b", "a")
    assert prompt.fill(("2", "1")) == "2-1-2"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_value_is_never_read_as_a_marker(value):
    assert Template("<{{text}}>").fill((value,)) == f"<{value}>"


def test_a_backslash_keeps_braces():
    assert Template(r"\{{x}} {{text}}").fill(("a",)) == "{{x}} a"


def test_a_missing_column_is_named_with_those_that_are_there():
    with pytest.raises(FatalError, match=r"'nope'.*there are: 'text', 'id'"):
        read_prompt("{{nope}}", ["text", "id"])


def test_a_prompt_without_a_column_is_refused():
    with pytest.raises(FatalError, match="names no column"):
        read_prompt("Which complaint is this?", ["text"])


MISSING = [
    *(None, math.nan, pd.NA, pd.NaT, np.float32("nan"), np.datetime64("NaT", "ns")),
    *(np.timedelta64("NaT", "ns"), decimal.Decimal("NaN")),
]


@pytest.mark.parametrize("value", MISSING, ids=repr)
def test_a_missing_value_is_the_rows_error(value):
    with pytest.raises(BadRow, match="text is missing"):
        Template("{{text}}").fill((value,))


def test_a_lone_surrogate_is_the_rows_error():
    with pytest.raises(BadRow, match="surrogate at character 2"):
        Template("{{text}}").fill(("a\ud800",))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (2.5, "2.5"),
        (True, "True"),
        (np.array([math.nan, 1]), "[NaN, 1.0]"),
        (np.array(["2024-02-29"], "M8[ns]"), '["2024-02-29T00:00:00"]'),
        (np.arange(2000), json.dumps(list(range(2000)))),
        ({"a": np.array(["b"]), "c": np.int64(3)}, '{"a": ["b"], "c": 3}'),
        (Colour.RED, "red"),
        ([Colour.RED, {"a": Colour.RED}], '["red", {"a": "red"}]'),
        ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        (pd.Timestamp("2024-03-01"), "2024-03-01T00:00:00"),
    ],
    ids=str,
)
def test_other_values_are_written_as_text(value, text):
    assert Template("{{x}}").fill((value,)) == text


AT = datetime.datetime(2024, 2, 29, 1, 2, 3, 4, datetime.timezone(datetime.timedelta(hours=5)))
MANY = list(range(2000))
ID = uuid.UUID(int=7)
# A value -> what JSON has for it inside of a list or dict.
INSIDE = [
    *((AT, AT.isoformat()), (AT.date(), "2024-02-29"), (AT.timetz(), AT.timetz().isoformat())),
    *((datetime.timedelta(1), "1 day, 0:00:00"), (decimal.Decimal("1.50"), "1.50"), (ID, str(ID))),
    *((np.int64(3), 3), (np.bool_(True), True), (np.float64(0.1), 0.1), (True, True), (1.5, 1.5)),
    (np.datetime64("2024-02-29T01:02:03.000000004", "ns"), "2024-02-29T01:02:03.000000004"),
    (np.datetime64("2024-02-29T01", "h"), "2024-02-29T01:00:00"),
    (pd.Timestamp("2024-02-29 00:00:00.000000001"), "2024-02-29T00:00:00.000000001"),
    *((pd.NaT, None), (pd.NA, None), (decimal.Decimal("NaN"), None), (None, None)),
    *((Path("a/b"), "a/b"), (Colour.RED, "red"), ({2, 1}, [1, 2])),
    (types.MappingProxyType({"a": AT}), {"a": AT.isoformat()}),
    *((np.array(MANY), MANY), (pd.Series(MANY), MANY), (pl.Series(MANY), MANY)),
    *((pa.array(MANY), MANY), (pa.chunked_array([MANY]), MANY), (pd.Index(MANY), MANY)),
    (pl.DataFrame({"a": MANY}), [{"a": each} for each in MANY]),
    (
        pd.DataFrame([[0.1234567891, None], [AT, "x"]], [AT, 1], ["a", "a"], dtype=object),
        {
            "index": [AT.isoformat(), 1],
            "columns": ["a", "a"],
            "data": [[0.1234567891, None], [AT.isoformat(), "x"]],
        },
    ),
    (pa.table({"a": MANY}), [{"a": each} for each in MANY]),
    *(
        ({AT: [1]}, {AT.isoformat(): [1]}),
        ({ID: {(1, "b"): AT}}, {str(ID): {'[1, "b"]': AT.isoformat()}}),
    ),
    *(({1: 2, None: 3}, {"1": 2, "null": 3}), ({Colour.RED: 1}, {"red": 1})),
]


@pytest.mark.parametrize(("value", "expected"), INSIDE, ids=lambda each: type(each).__name__)
def test_a_value_inside_of_others_is_whole_and_as_it_is_alone(value, expected):
    inside = Template("{{x}}").fill(([{"y": value}],))
    assert json.loads(inside) == [{"y": expected}]
    if expected is not None and not isinstance(value, Path | np.datetime64):
        alone = Template("{{x}}").fill((value,))
        assert alone in (expected, str(expected), json.dumps(expected, ensure_ascii=False))


def test_a_long_table_is_whole():
    texts = ["x" * 99, *map(str, range(100))]
    said = Template("{{x}}").fill((pd.DataFrame({"a": texts}),))
    assert json.loads(said)["data"] == [[each] for each in texts]


REFUSED = [
    *(b"x", bytearray(PNG), memoryview(PNG), PIL.Image.new("RGB", (1, 1)), "\ud800"),
    *((each for each in ()), lambda: None, pd.DataFrame({"a": [1]}).groupby("a")),
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("place", [lambda v: [v], lambda v: {"a": {"b": (v,)}}, lambda v: {1.5: v}])
def test_what_cannot_be_sent_inside_of_others_is_the_rows_error(place, value):
    with pytest.raises(BadRow):
        Template("{{x}}").fill((place(value),))


SETS = """
from itertools import combinations
from agent_magics.rows.prompts import Template, identity_of
value = set(map(frozenset, combinations("abcde", 3)))
print(Template("{{x}}").fill((value,)), end="")
print(identity_of(lambda row: row in {"a", "b", "c", "d", "e"}))
"""


def test_sets_are_written_the_same_in_each_process():
    def said(seed):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", SETS]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    whole = json.dumps(list(itertools.combinations("abcde", 3)))
    first, second = said(1), said(2)
    assert first == second and first.startswith(whole.encode())


class Bare:
    """A class whose objects have no text of their own."""


@pytest.mark.parametrize("value", [Bare(), [1, Bare()], {"a": Bare()}], ids=["it", "list", "dict"])
def test_an_address_is_no_text(value):
    with pytest.raises(BadRow, match="class Bare has no text of its own"):
        Template("{{x}}").fill((value,))


def translates(language, row):
    return f"Translate into {language}: {row}"


class Asks:
    """A callable object."""

    def __init__(self, word):
        self.word = word

    def __call__(self, row):
        return f"{self.word} {row}"


def bound(word, count=0):
    return lambda row: f"{word} {row} {count}"


def wrapped(function):
    return functools.wraps(function)(lambda row: function(row))


def said_in(language):
    return lambda function: functools.wraps(function)(lambda row: f"{function(row)} {language}")


def closed_over(function):
    return lambda row: function(row)


def by_name(source, target):
    def ask(row, *, source=source, target=target):
        return f"Translate from {source} into {target}: {row}"

    return ask


def beside_unassigned(language):
    def ask(row):
        return f"{language} {later} {row}"

    if not language:
        later = ""
    return ask


def shout(row):
    return f"Shout {row}"


def whisper(row):
    return f"Whisper {row}"


DIFFERENT = [
    *("Translate {{text}}", "Explain {{text}}", shout, whisper, str, str.upper),
    *(lambda row: f"Translate {row}", lambda row: f"Explain {row}"),
    *(lambda row: f"{row.a}", lambda row: f"{row.b}", lambda row: [x for x in row if x == "a"]),
    *(lambda row, to="French": f"{to} {row}", lambda row, to="Greek": f"{to} {row}"),
    *(functools.partial(translates, "French"), functools.partial(translates, language="Greek")),
    *(bound("Translate"), bound("Explain"), Asks("Translate"), wrapped(shout).__call__),
    *("Translate {}".format, "Explain {}".format),
    *(by_name("French", None), by_name(None, "French")),
    *(functools.partial(by_name, target="French"), functools.partial(by_name, source="French")),
    *(beside_unassigned("French"), beside_unassigned("Greek")),
    *(wrapped(shout), wrapped(whisper), said_in("French")(shout), said_in("Greek")(shout)),
    *(
        functools.cache(shout),
        functools.cache(wrapped(shout)),
        closed_over(str),
        closed_over(shout),
    ),
    *(closed_over(whisper), functools.partial(closed_over, shout)),
]


def test_prompts_are_told_apart():
    assert len(set(map(identity_of, DIFFERENT))) == len(DIFFERENT)


def test_a_prompt_that_is_defined_again_is_the_same_one():
    source = "def ask(row):\n    return [f'Say {x}' for x in row if x in {'a', 'b'}]"
    asks = []
    for lines in (0, 5):
        names = {}
        exec(compile("\n" * lines + source, f"<cell {lines}>", "exec"), names)
        asks.append(names["ask"])
    asks[0]("abc")
    assert identity_of(asks[0]) == identity_of(asks[1])
    assert identity_of(bound("a", 1)) == identity_of(bound("a", 2))  # a number may count calls
    assert identity_of(said_in("Greek")(shout)) == identity_of(said_in("Greek")(shout))


def test_images_become_parts(tmp_path):
    path = Path(tmp_path, "a.png")
    path.write_bytes(PNG)
    for value in (PNG, bytearray(PNG), memoryview(PNG), path):
        first, image = Template("What is this? {{photo}}").fill((value,))
        assert first == InputText("What is this? ")
        assert isinstance(image, InputImage) and image.image_url.startswith(
            "data:image/png;base64,"
        )


def test_bytes_that_are_no_image_are_the_rows_error():
    with pytest.raises(BadRow, match="no PNG"):
        Template("{{photo}}").fill((b"\x00\x01",))


def test_a_sound_is_no_image(tmp_path):
    sound = Path(tmp_path, "a.wav")
    sound.write_bytes(b"RIFF\xff\0\0\0WAVEfmt ")
    with pytest.raises(BadRow, match="no PNG"):
        Template("{{photo}}").fill((sound.read_bytes(),))
    with pytest.raises(BadRow, match="neither text nor an image"):
        Template("{{photo}}").fill((sound,))
    (image,) = Template("{{photo}}").fill((b"RIFF\xff\0\0\0WEBPVP8 ",))
    assert image.image_url.startswith("data:image/webp;")


@pytest.mark.parametrize("mode", ["CMYK", "F", "YCbCr"])
def test_an_image_of_any_mode_can_be_sent(mode):
    (image,) = Template("{{photo}}").fill((PIL.Image.new(mode, (2, 2)),))
    assert image.image_url.startswith("data:image/png;")


def test_a_function_gets_the_whole_row():
    assert read_prompt(lambda row: row["a"] * 2, ["a"]).fill({"a": "x"}) == "xx"


@pytest.mark.parametrize(
    "function",
    [lambda row: row["nope"], lambda row: None, lambda row: ("text",), lambda row: sys.exit(1)],
    ids=["raises", "None", "text in a tuple", "exits"],
)
def test_what_a_function_does_wrong_is_the_rows_error(function):
    with pytest.raises(BadRow, match="function"):
        read_prompt(function, []).fill({})


def error_of(prompt, row, most=1_000):
    return asked_row(0, row, prompt, digest_of(b"terms"), most)[3]


FORMS = {
    "text": "".join,
    "parts": lambda texts: tuple(map(InputText, texts)),
    "a picture": lambda texts: (InputImage("data:image/png;base64,"), *map(InputText, texts)),
}


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(st.text("aä\U0001f600\ud800\udcff", max_size=5), min_size=1, max_size=4))
def test_text_that_cannot_be_sent_is_not_asked_about_in_any_form(form, texts):
    prompt, length = read_prompt(lambda row: FORMS[form](texts), ()), sum(map(len, texts))
    if set("".join(texts)) & set("\ud800\udcff"):
        assert error_of(prompt, {}).startswith("the prompt holds ")
        return
    assert error_of(prompt, {}, length) == ""
    too_long = TOO_LONG.format(length=length, most=length - 1)
    assert error_of(prompt, {}, length - 1) == too_long


@pytest.mark.parametrize("photo", ["", PNG], ids=["text", "picture"])
def test_a_prompt_with_a_picture_is_as_long_as_its_text(photo):
    prompt = read_prompt("say {{text}} {{photo}}", ("text", "photo"))
    assert error_of(prompt, ("w" * 10, photo), 15) == ""
    assert error_of(prompt, ("w" * 10, photo), 14) == TOO_LONG.format(length=15, most=14)


@pytest.mark.parametrize(
    "part", [InputText("\ud800"), InputImage("data:\ud800"), InputText(3), InputImage(None)]
)
def test_a_part_without_text_that_can_be_sent_is_the_rows_error(part):
    assert error_of(read_prompt(lambda row: (part,), ()), {})


def test_half_a_character_of_the_prompt_itself_is_the_rows_error():
    for photo in ("x", PNG):
        assert error_of(read_prompt("\ud800 {{photo}}", ("photo",)), (photo,))
