"""Sentences of ours in which the words of others stand: they end in one full stop."""

import re
from asyncio import CancelledError
from pathlib import Path

import pytest

import agent_magics
from agent_magics import Agent, ScriptedModel
from agent_magics.dispatch.results.output import to_tool_output
from agent_magics.kernel.live.namespace import interpolate
from agent_magics.protocol.errors import (
    FatalError,
    RespondToModel,
    clause,
    own_or_typed_message,
    short_message,
    typed_message,
)
from agent_magics.tools.catalog.discovery import ToolFile, load_files

CLAUSES = [
    ("No.", "No"),
    ("  Not now...\n", "Not now"),
    ("", ""),
    (ValueError("It is closed."), "It is closed"),
    (OSError(28, "No space left.", "/tmp/x"), "No space left"),
    (OSError("strange"), "strange"),
    (RespondToModel("Give a name."), "Give a name"),
    (KeyError(), "KeyError"),
    (TimeoutError("."), "TimeoutError"),
]


@pytest.mark.parametrize(("said", "expected"), CLAUSES)
def test_a_clause_has_no_full_stop(said, expected):
    assert clause(said) == expected


class Refuses:
    """Says why, in a sentence, wherever it is called."""

    def __repr__(self):
        raise ValueError("It is closed.")

    def to_output(self, budget):
        raise ValueError("It is closed.")

    def before_model(self, request):
        raise ValueError("It is closed.")


def filled_in():
    with pytest.raises(FatalError) as failed:
        interpolate("{{repr(it)}}", {"it": Refuses()})
    return str(failed.value)


def hooked():
    with Agent(ScriptedModel(["Done."]), hooks=[Refuses()]) as agent:
        return agent.run_sync("Go.").error


def left_out():
    return load_files([ToolFile(Path("a.py"), b"raise ValueError('It is closed.')")]).warnings[0]


def shown():
    return to_tool_output(Refuses(), 1_000).text


@pytest.mark.parametrize("sentence", [filled_in, hooked, left_out, shown])
def test_a_sentence_that_another_has_ended_ends_once(sentence):
    found = sentence()
    assert "It is closed." in found and "closed.." not in found


def test_ipython_shows_the_lines_of_the_person_and_none_of_ours(tmp_path):
    report = tmp_path / "report.py"
    report.write_text("def report(make):\n    return make(modell='small')\n")
    names = {}
    exec(compile(report.read_text(), report, "exec"), names)
    with pytest.raises(FatalError) as failed:
        names["report"](Agent)
    here, there, sentence = failed.value._render_traceback_()
    assert Path(__file__).name in here
    assert there == f"{report}, line 2: return make(modell='small')"
    assert sentence == "FatalError: 'modell' is not a setting; did you mean model?"


def raised(code, place):
    try:
        exec(compile(code, place, "exec"), {"FatalError": FatalError})
    except FatalError as error:
        return [line for line in error._render_traceback_() if "exec(" not in line]


HOME = agent_magics.__path__[0]
DIVIDES = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    "
DIVIDED = ["cell.py, line 2: <module>", "ZeroDivisionError: division by zero", ""]
SHOWN = {
    "a cause in the person's code": (
        f"{DIVIDES}raise FatalError('No.') from error",
        "cell.py",
        [*DIVIDED, "cell.py, line 4: <module>", "FatalError: No."],
    ),
    "what was being handled": (
        f"{DIVIDES}raise FatalError('No.')",
        "cell.py",
        [*DIVIDED, "cell.py, line 4: <module>", "FatalError: No."],
    ),
    "nothing that is to be left out": (
        f"{DIVIDES}raise FatalError('No.') from None",
        "cell.py",
        ["cell.py, line 4: <module>", "FatalError: No."],
    ),
    "a cause in a package": (
        "import json\ntry:\n    json.loads('x')\nexcept ValueError as error:\n"
        "    raise FatalError('No.') from error",
        "/site-packages/other.py",
        ["FatalError: No."],
    ),
    "a note": (
        "error = FatalError('No.')\nerror.add_note('Ask Ann.')\nraise error",
        "cell.py",
        ["cell.py, line 3: <module>", "FatalError: No.", "Ask Ann."],
    ),
    "a folder that is called nearly as ours": (
        "raise FatalError('No.')",
        f"{HOME}_demo/cell.py",
        [f"{HOME}_demo/cell.py, line 1: <module>", "FatalError: No."],
    ),
    "a package of the person's home": (
        "raise FatalError('No.')",
        "/home/ann/.local/lib/python3.11/site-packages/other.py",
        ["FatalError: No."],
    ),
    "a name that would act on a terminal": (
        "raise FatalError('No.')",
        "a\x1b[2Jb.py",
        ["a[2Jb.py, line 1: <module>", "FatalError: No."],
    ),
}


@pytest.mark.parametrize("case", SHOWN)
def test_ipython_shows_also_what_led_to_an_error(case):
    code, place, told = SHOWN[case]
    assert raised(code, place) == told


def test_of_a_recursion_ipython_shows_the_last_calls():
    code = "def down(n):\n    if n:\n        down(n - 1)\n    raise FatalError('No.')\ndown(500)"
    assert len(raised(code, "cell.py")) < 102


def test_full_stops_are_taken_off_in_one_place():
    package = Path(agent_magics.__file__).parent
    found = [
        p for p in package.rglob("*.py") if re.search(r"rstrip\(['\"]\.['\"]\)", p.read_text())
    ]
    assert [str(path.relative_to(package)) for path in found] == ["protocol/errors.py"]


class Hostile(OSError):
    """An error whose class refuses whatever is asked of it."""

    def __str__(self):
        raise SystemExit("never")

    __repr__ = __len__ = __bool__ = __class__ = strerror = property(__str__)


class Marked(str):
    """A text that is another one wherever it is shown."""

    def __str__(self):
        return self

    def __format__(self, spec):
        raise ValueError("never")


STRANGE = {
    "it raises": lambda: Hostile("No."),
    "huge": lambda: ValueError("x" * 1_000_000),
    "huge reason": lambda: OSError(5, "x" * 1_000_000),
    "no text as reason": lambda: OSError(5, Hostile("No.")),
    "text of a class of its own": lambda: ValueError(Marked("No.")),
    "within an error of ours": lambda: FatalError(Hostile("No.")),
}


@pytest.mark.parametrize("say", [clause, short_message, typed_message, own_or_typed_message])
@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_what_anybody_raises_is_said_in_a_plain_short_text(make, say):
    said = say(make())
    assert type(said) is str and 0 < len(said) < 10_100


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CancelledError(), ValueError("")], ids=repr)
def test_an_error_without_a_message_is_said_by_its_type(error):
    assert typed_message(error) == type(error).__name__


# What a launcher and a search say, they say without the package.
BY_THEMSELVES = ("exec/launcher/", "files/search/pygrep.py")
KINDS = r"(?:\w*(?:Error|Exception)|RespondToModel|SandboxDenied|FatalError|TurnAbort|Fault)\b"
# An indented block with the name of the error that is caught before it, or given to it.
CAUGHT = re.compile(r"^( *)except [^\n:]* as (\w+):[^\n]*\n((?:\1 +.*\n|\n)*)", re.MULTILINE)
GIVEN = re.compile(rf"^( *)(?:async )?def .*\b(\w+): {KINDS}.*\n((?:\1 +.*\n|\n)*)", re.MULTILINE)


def said_by_their_classes(code):
    """Return the places where an error becomes text as its class likes, or "None"."""
    found = list[str]()
    for _, name, block in [*CAUGHT.findall(code), *GIVEN.findall(code)]:
        in_text = rf"""f["'].*\{{(?:[^{{}}()]* )?{name}(?:!\w)?\}}"""
        said = rf"{in_text}|\b(?:str|repr)\({name}\)|\.format\(.*={name}[,)]|\b{name}\.strerror"
        found += re.findall(said, block)
    return found


def test_no_error_is_turned_into_text_by_its_own_class():
    package = Path(agent_magics.__file__).parent
    names = {str(path.relative_to(package)): path for path in package.rglob("*.py")}
    found = {
        name: said
        for name, path in names.items()
        if not name.startswith(BY_THEMSELVES) and (said := said_by_their_classes(path.read_text()))
    }
    assert found == {}
