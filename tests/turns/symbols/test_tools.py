"""The symbol tools in a conversation: which are offered, and edits that are asked about."""

import sys

import pytest

from agent_magics import Call
from agent_magics.protocol.events import ApprovalRequested, PatchApplyEnd
from agent_magics.tools import STRUCTURE
from tests.support.language_servers.project import PROGRAM
from tests.support.turns import of_kind, outputs, scripted

CODE = "def one():\n    return 1\n\n\ndef two():\n    return one() + 1\n"


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.py").write_text(CODE)
    return folder


@pytest.fixture
def agent(work):
    made = []

    def make(*turns, **more):
        made.append(scripted(*turns, **{"cwd": work, "tools": ["edit_symbol"], **more}))
        return made[-1]

    yield make
    for each in made:
        each.close()


SEVEN = {"name_path": "one", "action": "replace", "text": "def one():\n    return 7"}


def test_an_edit_is_one_change_that_is_undone(agent, work):
    one = agent(Call("edit_symbol", SEVEN), "Done.")
    result = one.run_sync("Go.")
    assert (work / "a.py").read_text() == CODE.replace("return 1", "return 7")
    (ended,) = of_kind(result, PatchApplyEnd)
    assert "-    return 1\n+    return 7" in ended.diff
    assert outputs(one)[0][1].startswith("Replaced a.py:1-2 one.\nSuccess.")
    one.undo()
    assert (work / "a.py").read_text() == CODE


def test_the_question_is_that_of_a_patch_and_shows_its_diff(agent, work):
    one = agent(
        Call("edit_symbol", SEVEN),
        "Done.",
        approval="untrusted",
        on_question=lambda question: "deny",
    )
    (asked,) = of_kind(one.run_sync("Go."), ApprovalRequested)
    assert (asked.tool, asked.target) == ("apply_patch", "a.py")
    assert "-    return 1\n+    return 7" in asked.arguments
    assert (work / "a.py").read_text() == CODE
    assert "Success" not in outputs(one)[0][1]


def test_a_protected_file_is_not_written_unasked(agent, work):
    hook = work / ".git" / "hooks" / "h.py"
    hook.parent.mkdir(parents=True)
    hook.write_text(CODE)
    arguments = {"name_path": "one", "action": "remove", "path": ".git/hooks/h.py"}
    one = agent(Call("edit_symbol", arguments), "Done.")
    one.run_sync("Go.")
    assert hook.read_text() == CODE
    assert "protected" in outputs(one)[0][1]


@pytest.mark.parametrize("ending", ["", " as other"])
def test_a_name_that_an_importing_module_binds_is_refused(agent, work, ending):
    user = f"from statistics import mean\n\nfrom a import one{ending}\n\nprint(mean([1]))\n"
    (work / "b.py").write_text(user)
    table = {"python": {"command": sys.executable, "args": [str(PROGRAM), "good"]}}
    arguments = {"name_path": "one", "path": "a.py", "action": "rename", "text": "mean"}
    output = agent("Done.", language_servers=table).call_sync("edit_symbol", arguments)
    assert output.success is bool(ending), output.text
    if not ending:
        assert "one was not renamed: b.py already has mean" in output.text
        assert ((work / "a.py").read_text(), (work / "b.py").read_text()) == (CODE, user)


def test_they_are_offered_where_there_is_code(agent, work, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder, expected in ((work, list(STRUCTURE)), (empty, [])):
        one = agent("Done.", tools=["coding"], cwd=folder)
        one.run_sync("Go.")
        (request,) = one._models.given.requests
        names = [each.spec.name for each in request.tools]
        assert [name for name in names if name in STRUCTURE] == expected


def test_one_that_is_named_is_offered_anywhere(agent, tmp_path):
    one = agent("Done.", tools=["symbols"], cwd=tmp_path)
    one.run_sync("Go.")
    (request,) = one._models.given.requests
    assert [each.spec.name for each in request.tools] == ["symbols"]
