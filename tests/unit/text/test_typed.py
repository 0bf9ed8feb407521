"""A word that we print on a line for a person to type is read back from that line."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from agent_magics.kernel.typed_words import split_words
from agent_magics.mcp.client.server import McpServer
from agent_magics.mcp.client.status import Standing
from agent_magics.mcp.config.edit import McpFile
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.mcp import McpServerConfig
from agent_magics.rows.runs import OpenMap, Runs
from agent_magics.text.typed import as_typed

WORDS = st.text(st.sampled_from(" \t\\{}=/ab.'\"?!;%$-é"), max_size=12) | st.text(max_size=12)


def read(line: str) -> list[str] | None:
    """Return the words of a line; None for one that has none."""
    try:
        return split_words(line)
    except FatalError:
        return None


@pytest.mark.parametrize(
    ("word", "typed"),
    [
        ("mine", "mine"),
        ("it's", "it's"),
        ("the EU", '"the EU"'),
        ("'a", '"\'a"'),
        ('the "EU"', '"the "EU""'),
        ('the "E U"', '"the "E U""'),
        ('"the" EU', "'\"the\" EU'"),
        ("f='a", '"f=\'a"'),
        ("{{a b}}", "{{a b}}"),
        ("why?", '"why?"'),
        ("C:\\", '"C:\\"'),
        ("", '""'),
    ],
)
def test_quotes_stand_around_a_word_only_where_it_needs_them(word: str, typed: str) -> None:
    assert as_typed(word) == typed
    assert split_words(typed) == [word]


@given(WORDS)
@example("it' {{x\" y}} z")
@example("\"{{a}} ' b")
def test_a_word_is_read_back_wherever_that_is_possible(word: str) -> None:
    ways = (word, f'"{word}"', f"'{word}'")
    assert (read(as_typed(word)) == [word]) == any(read(way) == [word] for way in ways)


@given(WORDS.filter(lambda word: word.isprintable()))
@example("a?")
@example("a??")
@example("a\\")
def test_ipython_passes_it_on_as_it_is(word: str) -> None:
    code = TransformerManager().transform_cell(f"%agent map forget {as_typed(word)}\n")
    calls = (each for each in ast.walk(ast.parse(code)) if isinstance(each, ast.Call))
    (call,) = (each for each in calls if each.args)
    name, line = map(ast.literal_eval, call.args)
    assert (name, line) == ("agent", f"map forget {as_typed(word)}")


def of_a_run(name: str, folder: Path) -> str:
    runs = Runs(folder / "answers.sqlite")
    runs.keep(OpenMap(name, b"one", "m", 1, 1))
    with pytest.raises(FatalError) as caught:
        runs.find(OpenMap(name, b"other", "m", 1, 1))
    return str(caught.value)


def of_a_second_server(name: str, folder: Path) -> str:
    file = McpFile(folder / "servers.toml")
    file.add(name, {"command": "x"})
    with pytest.raises(FatalError) as caught:
        file.add(name, {"command": "x"})
    return str(caught.value)


def of_a_login(name: str, _: Path) -> str:
    return Standing(McpServerConfig(name, url="http://localhost"), str, list).login_sentence()


def of_a_server_that_ended(name: str, _: Path) -> str:
    server: Any = SimpleNamespace(config=McpServerConfig(name, "x"))
    return McpServer._way_back(server)


@pytest.mark.parametrize("name", ["mine", "it's", "the EU", 'the "E U"', "why?"])
@pytest.mark.parametrize("tell", [of_a_run, of_a_second_server, of_a_login, of_a_server_that_ended])
def test_a_line_in_a_sentence_is_read_back(tell: Any, name: str, tmp_path: Path) -> None:
    line = tell(name, tmp_path).partition("%agent ")[2].removesuffix(".")
    assert split_words(line)[2] == name
