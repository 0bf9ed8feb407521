"""The forms of what follows a word of ``%agent``."""

import argparse
import re

import pytest

from agent_magics.kernel.commands.control import WORDS
from agent_magics.kernel.commands.words import Forms, table
from agent_magics.kernel.completion.options import complete_line
from agent_magics.protocol.errors import FatalError

FORMS = Forms(
    "%agent x",
    {
        "": lambda: ("nothing",),
        "show [FILE] [PAGE]": lambda *values: ("show", *values),
        "hide NAME ...": lambda *values: ("hide", *values),
        "record next|off [mine|all]": lambda *values: ("record", *values),
        "keep N": lambda *values: ("keep", *values),
    },
    "; N is a number",
)
FIT = ["", "show", "show a", "show a b", "hide a", "hide a b c", "record next", "record off all"]
FIT += ["keep keep"]
SHOW, HIDE, RECORD = "show [FILE] [PAGE]", "hide NAME ...", "record next|off [mine|all]"
ALL = f"nothing, {SHOW}, {HIDE}, {RECORD}, keep N"
NOT = [
    ("a", ALL),
    ("KEEP 1", ALL),
    ("show a b c", SHOW),
    ("hide", HIDE),
    ("record", RECORD),
    ("record x", RECORD),
    ("record next x", RECORD),
    ("keep", "keep N"),
    ("keep 1 2", "keep N"),
]


@pytest.mark.parametrize("line", FIT)
def test_a_line_that_has_a_form_runs_its_function_with_the_values(line: str) -> None:
    assert FORMS.run(line.split()) == (tuple(line.split()) or ("nothing",))


@pytest.mark.parametrize(("line", "forms"), NOT)
def test_a_line_that_has_none_is_refused_with_those_of_its_word(line: str, forms: str) -> None:
    usage = f"%agent x takes: {forms}; N is a number."
    with pytest.raises(FatalError, match=f"^{re.escape(usage)}$"):
        FORMS.run(line.split())


def test_words_complete_and_values_do_not() -> None:
    assert FORMS.words == ["show", "hide", "record", "next", "off", "mine", "all", "keep"]


def test_each_command_has_a_line_of_help_and_nothing_that_completes_one_that_stands_alone() -> None:
    assert len(WORDS) > 30
    for command in WORDS.values():
        assert 10 < len(command.help) < 100
        assert not (command.is_alone and list(command.following))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%agent lsp ", ["log", "restart", "stop"]),
        ("%agent map ", ["resume", "cancel", "forget"]),
        ("%agent memory s", ["show"]),
        ("%agent recording rerecord o", ["off"]),
        ("%agent answer --u", ["--unattended"]),
        ("%agent usage ", []),
        ("%agent nonsense ", []),
        ("%agent skil", ["skills"]),
    ],
)
def test_what_may_follow_completes(line: str, words: list[str]) -> None:
    assert complete_line(line, argparse.ArgumentParser(), {})[1] == words


def test_numbers_stand_on_the_right_and_words_on_the_left():
    rows = [("`a`", "1,250", "0.045 USD", "no"), ("b", "-", "", "12 of them, or so")]
    assert table(("Tool", "Tokens", "Cost", "Says"), rows).splitlines() == [
        "| Tool | Tokens | Cost | Says |",
        "| :--- | ---: | ---: | :--- |",
        "| `a` | 1,250 | 0.045 USD | no |",
        "| b | - |  | 12 of them, or so |",
    ]


def test_nothing_in_a_cell_breaks_the_table():
    assert table(("A",), [("x|y\nz",)]) == "| A |\n| :--- |\n| x\\|y z |"
    assert table(("A", "B"), []).count("\n") == 1
