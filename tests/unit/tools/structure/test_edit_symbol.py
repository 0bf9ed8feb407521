"""`edit_symbol` by hand: edits as patches, line ends, refusals."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_magics.patch.plan import plan_patch, read_patch
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.edits import apply_edits
from agent_magics.symbols.parsing import syntax_error
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
        (("maß", "replace", "def maß(self:\n  pass"), r"a.py would not parse any more \(line 5: "),
        (("maß", "replace", "def maß(self):\n    return 'ä'"), "reads so already"),
        (("maß", "rename", "not a name"), "cannot be the new name"),
        (("maß", "rename", "maß"), "cannot be the new name"),
        (("maß", "rename", "class"), "cannot be the new name"),
        (("maß", "destroy"), "action='destroy' does not fit; it takes 'replace'"),
        ((7, "remove"), "name_path=7 does not fit; it takes text"),
        (("maß", "rename", "weite"), "rename needs a language server"),
    ],
)  # fmt: skip
def test_what_does_not_fit_changes_nothing(work, arguments, message):
    with pytest.raises(RespondToModel, match=message):
        edit(*arguments)
    assert (work / "a.py").read_bytes() == CODE.encode()


@pytest.mark.parametrize(
    ("suffix", "code"),
    [
        (".py", "class A:\n    def f(self): ...\n    taken = 1\n\n\ndef free(): ...\n"),
        (".ts", "class A {\n  f() {}\n  taken = 1;\n}\n\nfunction free() {}\n"),
    ],
)
def test_a_name_that_the_container_has_is_refused(work, suffix, code):
    (work / f"b{suffix}").write_text(code)
    with pytest.raises(RespondToModel, match=f"not renamed: b{suffix} already has A/taken"):
        edit("A/f", "rename", "taken", path=f"b{suffix}")
    with pytest.raises(RespondToModel, match="rename needs a language server"):
        edit("A/f", "rename", "free", path=f"b{suffix}")


@pytest.mark.parametrize(
    ("symbol", "name", "told"),
    [
        ("average", "mean", "already has mean"),
        ("average", "total", "already has total"),
        ("Basket/add_up", "total", "already has Basket/total"),
    ],
)
def test_a_name_that_the_scope_binds_in_another_way_is_refused(work, symbol, name, told):
    """A rename to it would hide what it means: `mean` would call itself for ever."""
    (work / "m.py").write_text(
        "from statistics import mean\n\n\nclass Basket:\n    def __init__(self):\n"
        "        self.total = 0\n\n    def add_up(self):\n        return self.total\n\n\n"
        "def average(values):\n    global total\n    total = mean(values)\n"
    )
    with pytest.raises(RespondToModel, match=f"not renamed: m.py {told}"):
        edit(symbol, "rename", name, path="m.py")
    with pytest.raises(RespondToModel, match="rename needs a language server"):
        edit(symbol, "rename", "values", path="m.py")


@pytest.mark.parametrize(
    ("action", "text"), [("remove", ""), ("replace", "a = 1"), ("replace", "a = 1 \\")]
)
@pytest.mark.parametrize("code", ["a, b = 1, 2\n", "b = a = 1\n", "[a, (*c, b)] = d\n"])
def test_a_name_that_stands_in_the_same_statement_is_not_lost(work, code, action, text):
    (work / "b.py").write_text(code)
    with pytest.raises(RespondToModel, match="Nothing was changed"):
        edit("a", action, text, path="b.py")
    assert (work / "b.py").read_text() == code


CLASSES = {
    ".py": "class A:\n    def m(self):\n        return 1\n\n\nclass B:\n    pass\n",
    ".js": "class A {\n  m() {\n    return 1;\n  }\n}\n\nclass B {}\n",
    ".ts": "class A {\n  m(): number {\n    return 1;\n  }\n}\n\nexport class B<T> {}\n",
    ".tsx": "class A {\n  m() {\n    return <b>1</b>;\n  }\n}\n\nclass B {}\n",
}
PIECES = st.sampled_from(
    ["class C {}", "class C: x = 1", "m() { return 2 }", "def m(self): pass", "(", "}", "'", "\n"]
)


@pytest.mark.parametrize("suffix", CLASSES)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_what_parsed_still_parses(work, suffix, data):
    file = work / f"law{suffix}"
    file.write_text(CLASSES[suffix])
    action = data.draw(st.sampled_from(["replace", "insert_before", "insert_after", "remove"]))
    text = " ".join(data.draw(st.lists(PIECES, min_size=1, max_size=4)))
    try:
        edit(data.draw(st.sampled_from(["A", "A/m", "B"])), action, text, path=file.name)
    except RespondToModel:
        assert file.read_text() == CLASSES[suffix]
    assert not syntax_error(file, file.read_text())


def test_where_it_would_not_parse_is_said(work):
    (work / "a.ts").write_text(CLASSES[".ts"])
    with pytest.raises(RespondToModel, match=r"a.ts would not parse any more \(line 3\)"):
        edit("A/m", "replace", "m(): number {\n  return (1;\n}", path="a.ts")


def test_what_did_not_parse_may_be_edited(work):
    (work / "a.js").write_text("function f() { return (1; }\nfunction g() {}\n")
    edit("f", "replace", "function f() { return ((1; }", path="a.js")
    assert (work / "a.js").read_text().startswith("function f() { return ((1; }")


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
