"""`edit_symbol` by hand: edits as patches, line ends, refusals."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics.patch.plan import plan_patch, read_patch
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.edits import apply_edits
from agent_magics.symbols.types import Range, TextEdit
from agent_magics.tools import edit_symbol
from agent_magics.tools.structure.editing import patch_of
from agent_magics.tools.structure.sources import SourceFile

CODE = "import os\r\n\r\n\r\nclass Größe:\r\n    def maß(self):\r\n        return 'ä'\r\n"


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_bytes(CODE.encode())
    return tmp_path


def edit(*args, **kwargs):
    return asyncio.run(edit_symbol(*args, **kwargs))


def test_line_ends_stay_and_only_the_symbol_changes(work):
    edit("Größe/maß", "replace", "def maß(self):\n    return 'ö'")
    assert (work / "a.py").read_bytes() == CODE.replace("'ä'", "'ö'").encode()


def test_each_action(work):
    edit("maß", "insert_after", "def mehr(self): ...")
    edit("mehr", "insert_before", "x = 1")
    edit("maß", "remove")
    assert (work / "a.py").read_bytes() == (
        "import os\r\n\r\n\r\nclass Größe:\r\n    x = 1\r\n\r\n    def mehr(self): ...\r\n"
    ).encode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing", "remove"), "There is no symbol nothing"),
        (("Größe", "replace", ""), "text is empty"),
        (("maß", "replace", "def maß(self:\n  pass"), "a.py would be no Python"),
        (("maß", "replace", "def maß(self):\n    return 'ä'"), "reads so already"),
        (("maß", "rename", "not a name"), "cannot be the new name"),
        (("maß", "rename", "maß"), "cannot be the new name"),
        (("maß", "rename", "weite"), "rename needs a language server"),
    ],
)  # fmt: skip
def test_what_does_not_fit_changes_nothing(work, arguments, message):
    with pytest.raises(RespondToModel, match=message):
        edit(*arguments)
    assert (work / "a.py").read_bytes() == CODE.encode()


@pytest.mark.parametrize(
    ("action", "text"), [("remove", ""), ("replace", "a = 1"), ("replace", "a = 1 \\")]
)
@pytest.mark.parametrize("code", ["a, b = 1, 2\n", "b = a = 1\n", "[a, (*c, b)] = d\n"])
def test_a_name_that_stands_in_the_same_statement_is_not_lost(work, code, action, text):
    (work / "b.py").write_text(code)
    with pytest.raises(RespondToModel, match="Nothing was changed"):
        edit("a", action, text, path="b.py")
    assert (work / "b.py").read_text() == code


def test_carriage_returns_alone_are_refused(work):
    (work / "old.py").write_bytes(b"x = 1\ry = 2\r")
    with pytest.raises(RespondToModel, match="carriage returns alone"):
        edit("y", "replace", "y = 3", path="old.py")


LINE = st.sampled_from(["", "a", "b", "é", "  a", "\ta b", "- x", "+ y", "@@"])
LINES = st.lists(LINE, max_size=9)


@given(LINES, st.sampled_from(["", "\n"]), st.sampled_from(["\n", "\r\n"]), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_patch_does_what_the_edits_say(tmp_path, lines, end, breaks, data):
    text = breaks.join(lines) + (end and breaks)
    file = SourceFile(Path("/x/f.txt"), "f.txt", text)
    offsets = [
        n for n in range(len(text) + 1) if not (text[n - 1 : n] == "\r" and text[n : n + 1] == "\n")
    ]
    cuts = sorted(data.draw(st.lists(st.sampled_from(offsets), max_size=4, unique=True)))
    news = st.sampled_from(["", "new", "one\ntwo", "\n", "x\n"])
    edits = [
        TextEdit(Range(file.source.position(a), file.source.position(b)), data.draw(news))
        for a, b in zip(cuts[::2], cuts[1::2], strict=False)
    ]
    wanted = apply_edits(file.source, edits)
    patch = patch_of([(file, edits)])
    place = tmp_path / "f.txt"
    place.write_bytes(text.encode())
    if patch:
        plan_patch(read_patch(patch), lambda name: place).apply()
    found = place.read_bytes().decode()
    # An end without a line break keeps it, and one with a break as well.
    assert found.replace("\r\n", "\n").removesuffix("\n") == (
        wanted.replace("\r\n", "\n").removesuffix("\n")
    )
