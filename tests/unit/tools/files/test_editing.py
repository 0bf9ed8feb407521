"""`write_file` and `edit_file`: the whole of a file, and one text in place of another."""

import asyncio
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.approval.actions import ActionKind
from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import PatchApplyBegin, PatchApplyEnd
from agent_magics.protocol.tools import FunctionPayload, ToolCall
from agent_magics.tools.files.editing import edit_file, write_file
from tests.support.contexts import make_context

DONE = "Success. Updated the following files:\n"


def call(function, ctx, **arguments):
    """Take a call the way of the engine: arguments, assessment, run."""
    handler = FunctionToolHandler(function)
    name = function.tool_options.name
    payload = FunctionPayload(json.dumps(arguments))
    invocation = handler.prepare(ToolCall("c1", name, payload), ctx)
    actions = handler.assess(invocation)
    return actions, asyncio.run(handler.handle(invocation)).content


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("content", ["", "\n", "a", "a\n", "a\n\n", "a\nb", "é\r\nb\r\n", "\r\n"])
def test_a_new_file_holds_exactly_what_was_given(work, content):
    assert repr(write_file("d/e/f.txt", content)) == f"{DONE}A d/e/f.txt\n"
    assert (work / "d/e/f.txt").read_bytes() == content.encode()


def test_a_new_file_has_a_diff(work):
    assert write_file("f", "a\nb").diff == (
        "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    )


@settings(max_examples=100)
@given(st.text("ab\n", max_size=12), st.text("ab\n", max_size=12))
def test_what_is_there_is_replaced_and_git_applies_the_diff(tmp_path_factory, old, new):
    folder = tmp_path_factory.mktemp("writing")
    path = folder / "f"
    path.write_bytes(old.encode())
    diff = write_file(str(path), new).diff.replace(str(path), "f")
    assert path.read_bytes() == new.encode()
    assert bool(diff) == (old != new)
    path.write_bytes(old.encode())
    if diff:
        command = ["git", "apply", "--whitespace=nowarn"]
        subprocess.run(command, cwd=folder, input=diff.encode(), check=True)
    assert path.read_bytes() == new.encode()


def test_replacing_is_told_and_keeps_mode_and_line_ends(work):
    path = work / "f"
    path.write_bytes(b"1\r\n2\r\n")
    path.chmod(0o750)
    assert repr(write_file("f", "1\nthree\nfour\n")) == f"{DONE}R f (replaced 2 lines)\n"
    assert path.read_bytes() == b"1\r\nthree\r\nfour\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_a_name_is_one_line_of_the_answer(work):
    answer = repr(write_file("a\nM b\x1b[8m", "x"))
    assert answer == f"{DONE}A a\\nM b\\x1b[8m\n"


def test_writing_the_same_changes_nothing(work):
    (work / "f").write_bytes(b"1\n")
    before = os.stat("f")
    assert "unchanged" in repr(write_file("f", "1\n"))
    after = os.stat("f")
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


@pytest.mark.parametrize(
    ("old", "new", "everywhere", "after"),
    [
        ("two", "2", False, "one\n2\nthree three\n"),
        ("two\n", "", False, "one\nthree three\n"),
        ("one\ntwo", "x", False, "x\nthree three\n"),
        ("e\nt", "", False, "onwo\nthree three\n"),
        ("three", "3", True, "one\ntwo\n3 3\n"),
        ("e", "EE", True, "onEE\ntwo\nthrEEEE thrEEEE\n"),
        ("\n", "\n\n", True, "one\n\ntwo\n\nthree three\n\n"),
        ("\n", "", True, "onetwothree three"),
    ],
)
def test_one_text_comes_in_place_of_another(work, old, new, everywhere, after):
    (work / "f").write_bytes(b"one\ntwo\nthree three\n")
    result = edit_file("f", old, new, replace_all=everywhere)
    assert (work / "f").read_text(encoding="utf-8") == after
    assert result.diff.startswith("--- a/f\n+++ b/f\n@@ ")


@settings(max_examples=200)
@given(
    st.text("ab\n", min_size=1, max_size=30),
    st.text("ab\n", min_size=1, max_size=3),
    st.text("abc\n", max_size=3),
)
def test_replacing_everywhere_is_what_str_replace_does(tmp_path_factory, text, old, new):
    text += "\n"
    path = tmp_path_factory.mktemp("editing") / "f"
    path.write_bytes(text.encode())
    if old not in text or old == new:
        with pytest.raises(RespondToModel):
            edit_file(str(path), old, new, replace_all=True)
        return
    wanted = text.replace(old, new)
    edit_file(str(path), old, new, replace_all=True)
    assert path.read_text(encoding="utf-8") == wanted


@pytest.mark.soak
def test_many_places_are_fast_enough_to_wait_for(work):
    (work / "f").write_text("word and more\n" * 100_000, encoding="utf-8")
    edit_file("f", "word", "WORD", replace_all=True)
    assert (work / "f").read_text(encoding="utf-8") == "WORD and more\n" * 100_000


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("f", "no", "x"), "f: old was not found"),
        (("f", "1", "x"), "f: old stands in several places of it, at lines 1, 3"),
        (("f", "1 ", "x"), "its lines are at lines 1, 3; add lines around it"),
        (("f", "", "x"), "f: it is there already and not empty; give the text to replace in old"),
        (("f", "1", "1"), "old and new are the same text"),
        (("f", "1", "\0"), "new holds a NUL character"),
        (("g", "1", "2"), "g cannot be updated: there is no such file"),
    ],
)
def test_a_text_that_does_not_fit_changes_nothing(work, arguments, why):
    (work / "f").write_bytes(b"1\n2\n1\n")
    with pytest.raises(RespondToModel) as refused:
        edit_file(*arguments)
    assert why in str(refused.value)
    assert "@@" not in str(refused.value), "that is for patches"
    assert (work / "f").read_bytes() == b"1\n2\n1\n"


def test_text_that_no_file_can_hold_is_refused(work):
    with pytest.raises(RespondToModel, match="content holds half of a surrogate pair"):
        write_file("f", "\ud800")
    assert not (work / "f").exists()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (write_file, {"path": "f", "content": "two\n"}),
        (edit_file, {"path": "f", "old": "one", "new": "two"}),
    ],
)
def test_a_model_s_call_is_assessed_told_and_shown(tmp_path: Path, function, arguments):
    (tmp_path / "f").write_bytes(b"one\n")
    context = make_context(tmp_path)
    actions, answer = call(function, context, **arguments)
    assert [(action.kind, action.target) for action in actions] == [(ActionKind.WRITE_INSIDE, "f")]
    assert answer.startswith(DONE)
    assert (tmp_path / "f").read_bytes() == b"two\n"
    events = context.extra["events"]
    assert [kind for kind, _ in events] == [PatchApplyBegin, PatchApplyEnd]
    assert events[1][1]["diff"] == "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n"


@pytest.mark.parametrize(
    ("content", "more", "shown"),
    [
        ("one\n", {}, "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n"),
        ("one\n" * 2, {}, ""),  # it does not fit
        ("one\n" * 300, {"replace_all": True}, ""),  # too long a diff
        ("one" + "\n" * 1_000_000, {}, ""),  # too large a file
        ("one\n", {"new": "two\r\n"}, ""),  # a diff would not show it
    ],
)
def test_a_question_shows_the_change_as_a_diff(tmp_path: Path, content, more, shown):
    (tmp_path / "f").write_bytes(content.encode())
    arguments = {"path": "f", "old": "one", "new": "two", **more}
    (action,) = edit_file.tool_options.assess(arguments, make_context(tmp_path))
    assert action.show() == shown


def test_what_is_protected_is_not_read_for_a_question(tmp_path: Path):
    (tmp_path / ".env").write_text("KEY=secret\n")
    (tmp_path / "link").symlink_to(".env")
    for path in (".env", "link"):
        arguments = {"path": path, "content": "KEY=\n"}
        (action,) = write_file.tool_options.assess(arguments, make_context(tmp_path))
        assert action.show() == ""


def test_what_is_outside_or_protected_is_asked_about(tmp_path: Path):
    work = tmp_path / "work"
    work.mkdir()
    for path, reason in (("../x", "outside"), (".git/config", "git")):
        for function, more in (
            (write_file, {"content": ""}),
            (edit_file, {"old": "", "new": "x"}),
        ):
            arguments = {"path": path, **more}
            (action,) = function.tool_options.assess(arguments, make_context(work))
            assert action.kind is ActionKind.WRITE_OUTSIDE
            assert reason in action.reason
