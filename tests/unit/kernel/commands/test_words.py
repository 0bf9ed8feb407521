"""The forms of what follows a word of ``%agent``."""

import argparse
import re
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace

import pytest

from agent_magics.kernel.commands.control import WORDS
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.completion.options import complete_line
from agent_magics.protocol.errors import FatalError

FORMS = Command(
    "x",
    {
        "": lambda: ("nothing",),
        "show [FILE] [PAGE]": lambda *values: ("show", *values),
        "hide NAME ...": lambda *values: ("hide", *values),
        "record next|off [mine|all]": lambda *values: ("record", *values),
        "keep N": lambda *values: ("keep", *values),
        "--all": lambda: ("all",),
        "send A ... [--fast] [--to N]": lambda *values, **options: (*values, options),
    },
    note="; N is a number",
)
FIT = ["", "show", "show a", "show a b", "hide a", "hide a b c", "record next", "record off all"]
SHOW, HIDE, RECORD = "show [FILE] [PAGE]", "hide NAME ...", "record next|off [mine|all]"
SEND = "send A ... [--fast] [--to N]"
ALL = f"nothing, {SHOW}, {HIDE}, {RECORD}, keep N, --all, {SEND}"
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
    ("keep keep", "keep N"),
    ("keep 0", "keep N"),
    ("keep -1", "keep N"),
    (f"keep {'1' * 5000}", "keep N"),
    ("--all --all", "--all"),
    ("--al", ALL),
    ("send", SEND),
    ("send --fast", SEND),
    ("send a --fas", SEND),
    ("send a --fast=1", SEND),
    ("send a --to", SEND),
    ("send a --to b", SEND),
    ("[--fast]", ALL),
    ("N", ALL),
]


@pytest.mark.parametrize("word", WORDS)
def test_the_help_of_a_word_says_what_each_form_does(word: str) -> None:
    rows = WORDS[word].details.splitlines()[2:]
    assert len(rows) == len(WORDS[word]._forms)
    assert [row for row in rows if re.search(r"\|\s+\|$", row)] == []


@pytest.mark.parametrize("line", FIT)
def test_a_line_that_has_a_form_runs_its_function_with_the_values(line: str) -> None:
    assert FORMS.run(line.split()) == (tuple(line.split()) or ("nothing",))


@pytest.mark.parametrize(("line", "forms"), NOT)
def test_a_line_that_has_none_is_refused_with_those_of_its_word(line: str, forms: str) -> None:
    usage = f"%agent x takes: {forms}; N is a number."
    with pytest.raises(FatalError, match=f"^{re.escape(usage)}$"):
        FORMS.run(line.split())


def test_numbers_and_options_are_read() -> None:
    assert FORMS.run(["keep", "12"]) == ("keep", 12)
    assert FORMS.run(["--all"]) == ("all",)
    read = {"send a b": {}, "send --fast a b": {"fast": True}}
    read["send a --to 3 b --fast"] = read["send --to=3 --fast a b"] = {"fast": True, "to": 3}
    for line, options in read.items():
        assert FORMS.run(line.split()) == ("a", "b", options)


def test_words_complete_and_values_do_not() -> None:
    words = ["show", "hide", "record", "next", "off", "mine", "all", "keep"]
    assert FORMS.following == [*words, "--all", "send", "--fast", "--to"]


class Agents:
    """Stands for a notebook with two agents, each by its name."""

    settings = SimpleNamespace(name="mine")
    agents: Mapping[str, None] = MappingProxyType({"other": None, "list": None})

    @staticmethod
    def agent_named(name: str) -> str:
        return name or "mine"


OF_AGENT = Command(
    "x",
    {"[N] [--all]": lambda _, *got, **options: (*got, options), "list": lambda *_: "listed"},
    of_agent=True,
)
TEXT = Command("x", {"TEXT ...": lambda _, *got: got}, of_agent=True, is_verbatim=True)


@pytest.mark.parametrize(
    ("command", "line", "got"),
    [
        (OF_AGENT, "", ("mine", {})),
        (OF_AGENT, "other", ("other", {})),
        (OF_AGENT, "3 other --all", ("other", 3, {"all": True})),
        (OF_AGENT, "list", "listed"),  # though an agent has this name
        (TEXT, "other --all is N", ("mine", "other", "--all", "is", "N")),
        (TEXT, "--name other --name it", ("other", "--name", "it")),
    ],
)
def test_a_line_may_name_an_agent(command: Command, line: str, got: object) -> None:
    assert command.act(Agents(), line.split()) == got


NAMED = "; and the name of an agent: mine, other, list."


@pytest.mark.parametrize(
    ("command", "line", "told"),
    [
        (
            OF_AGENT,
            "others",
            f"%agent x takes: [N] [--all], list{NAMED}",
        ),
        (OF_AGENT, "mine other", "One agent at a time, please: mine, other."),
        (TEXT, "--name othr a", "There is no agent 'othr'; did you mean other?"),
        (
            TEXT,
            "--name other",
            f"%agent x takes: TEXT ...{NAMED}",
        ),
    ],
)
def test_an_agent_that_is_not_there_is_refused(command: Command, line: str, told: str) -> None:
    with pytest.raises(FatalError) as refused:
        command.act(Agents(), line.split())
    assert str(refused.value) == told


def test_each_command_has_a_line_of_help() -> None:
    assert len(WORDS) > 30
    for command in WORDS.values():
        assert 10 < len(command.help) < 100


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%agent lsp ", ["log", "restart", "stop"]),
        ("%agent map ", ["--cache", "resume", "cancel", "forget"]),
        ("%agent memory s", ["show"]),
        ("%agent recording rerecord o", ["off"]),
        ("%agent answer --u", ["--unattended"]),
        ("%agent usage ", []),
        ("%agent rewind 2 --no-f", ["--no-files"]),
        ("%agent serve --s", ["--stop"]),
        ("%agent sessions un", ["unpin"]),
        ("%agent nonsense ", []),
        ("%agent skil", ["skills"]),
    ],
)
def test_what_may_follow_completes(line: str, words: list[str]) -> None:
    assert complete_line(line, argparse.ArgumentParser(), {})[1] == words
