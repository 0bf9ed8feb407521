"""Sentences of ours in which the words of others stand: they end in one full stop."""

import re
from pathlib import Path

import pytest

import agent_magics
from agent_magics import Agent, ScriptedModel
from agent_magics.dispatch.results.output import to_tool_output
from agent_magics.kernel.live.namespace import interpolate
from agent_magics.protocol.errors import FatalError, RespondToModel, clause
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


def test_full_stops_are_taken_off_in_one_place():
    package = Path(agent_magics.__file__).parent
    found = [
        p for p in package.rglob("*.py") if re.search(r"rstrip\(['\"]\.['\"]\)", p.read_text())
    ]
    assert [str(path.relative_to(package)) for path in found] == ["protocol/errors.py"]
