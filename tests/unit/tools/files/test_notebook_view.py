"""What a model is shown of notebooks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools import read_file
from tests.support.contexts import make_context

PICTURE = "iVBORw0KGgo" * 500
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "ab12", "metadata": {}, "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "id": "cd34",
            "execution_count": 3,
            "metadata": {"tags": ["slow"]},
            "source": "plot()\nprint(1)",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": "1\n" * 40},
                {
                    "output_type": "display_data",
                    "data": {"image/png": PICTURE, "text/plain": "<Figure>"},
                },
                {
                    "output_type": "error",
                    "ename": "ValueError",
                    "evalue": "no",
                    "traceback": ["\x1b[31m-----", "Cell In[3], line 1\n----> 1 plot()"],
                },
            ],
        },
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def shown(folder, content, budget=10_000, **arguments):
    (folder / "a.ipynb").write_text(
        content if isinstance(content, str) else json.dumps(content), encoding="utf-8"
    )
    return read_file("a.ipynb", **arguments, ctx=make_context(folder)).to_output(budget).text


def test_a_notebook_is_its_cells(tmp_path):
    text = shown(tmp_path, NOTEBOOK)
    assert [line[6:] for line in text.split("\n")[:10]] == [
        "a.ipynb: 2 cells (1 markdown, 1 code), kernel python3",
        "",
        "-- [1] markdown, id=ab12",
        "# Title",
        "text",
        "",
        "-- [2] code, id=cd34, In [3], tags=['slow']",
        "plot()",
        "print(1)",
        "=> stdout",
    ]
    assert "=> image/png of 5,500 characters, text/plain" in text
    assert (
        "=> error\n  25|    ValueError: no\n  26|    -----\n  27|    Cell In[3], line 1\n" in text
    )
    assert "… 60 more characters" in text
    assert PICTURE not in text
    assert text.endswith("of the notebook shown as cells. offset_bytes=0 reads the raw JSON.")


def test_its_lines_are_those_of_the_cells(tmp_path):
    text = shown(tmp_path, NOTEBOOK, start_line=7, end_line=8)
    assert text.split("\n")[:2] == [
        "   7| -- [2] code, id=cd34, In [3], tags=['slow']",
        "   8| plot()",
    ]
    assert "go on with start_line=9" in text
    with pytest.raises(RespondToModel, match="so there is no line 99"):
        shown(tmp_path, NOTEBOOK, start_line=99)


def test_the_json_is_there_when_asked_for(tmp_path, monkeypatch):
    assert shown(tmp_path, NOTEBOOK, offset_bytes=0).startswith('   1| {"cells": [{"cell_type"')
    monkeypatch.chdir(tmp_path)
    assert json.loads(read_file("a.ipynb")) == NOTEBOOK


@pytest.mark.parametrize("content", ["{not json", "[1, 2]", '{"cells": 5}', ""])
def test_what_is_no_notebook_is_text(content, tmp_path):
    text = shown(tmp_path, content)
    assert "as cells" not in text
    assert content in text


def test_an_empty_notebook(tmp_path):
    assert "a.ipynb: 0 cells" in shown(tmp_path, {"cells": []})


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5) | st.booleans(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["cell_type", "source", "outputs", "data", "text", "output_type"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_cell_is_shown(tmp_path_factory, cell):
    text = shown(
        tmp_path_factory.mktemp("n"), {"cells": [cell, {"outputs": [cell], "source": cell}]}
    )
    assert "as cells" in text
