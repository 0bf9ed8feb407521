"""Prompts of rows: columns, missing values, and what cannot be sent."""

import decimal
import enum
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.rows.prompts import BadRow, Template, read_prompt


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
        (np.array(["2024-02-29"], "M8[ns]"), '["2024-02-29 00:00:00"]'),
        (np.arange(2000), json.dumps(list(range(2000)))),
        ({"a": np.array(["b"]), "c": np.int64(3)}, '{"a": ["b"], "c": 3}'),
        (Colour.RED, "red"),
        ({"a": [1, "ü"]}, '{"a": [1, "ü"]}'),
        (pd.Timestamp("2024-03-01"), "2024-03-01T00:00:00"),
    ],
    ids=str,
)
def test_other_values_are_written_as_text(value, text):
    assert Template("{{x}}").fill((value,)) == text


SETS = """
from itertools import combinations
from agent_magics.rows.prompts import Template
value = set(map(frozenset, combinations("abcde", 3)))
print(Template("{{x}}").fill((value,)), end="")
"""


def test_sets_in_sets_are_written_the_same_in_each_process():
    def said(seed):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", SETS]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    whole = json.dumps(list(itertools.combinations("abcde", 3)))
    assert [said(seed) for seed in (1, 2)] == [whole.encode()] * 2


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
