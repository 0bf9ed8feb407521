"""Patches against real files: what they make of a tree, and that a bad one changes nothing."""

import os
import re
import resource
import stat
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.patch.grammar import AddFile, Chunk, DeleteFile, UpdateFile, parse_patch
from agent_magics.patch.plan import PatchPlan, PatchResult, plan_patch
from agent_magics.protocol.errors import RespondToModel

Tree = dict[str, bytes]

SUCCESS = "Success. Updated the following files:\n"


def patch(*body: str) -> str:
    return "\n".join(("*** Begin Patch", *body, "*** End Patch"))


def write_tree(root: Path, tree: Tree) -> None:
    for name, data in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def read_tree(root: Path) -> Tree:
    """Every file, and every folder under its name with a slash."""
    found = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        found[name + "/" if path.is_dir() else name] = b"" if path.is_dir() else path.read_bytes()
    return found


def files(tree: Tree) -> Tree:
    return {name: data for name, data in tree.items() if not name.endswith("/")}


def plan(root: Path, text: str) -> PatchPlan:
    return plan_patch(parse_patch(text), lambda name: Path(os.path.realpath(root / name)))


def apply(root: Path, text: str) -> PatchResult:
    return plan(root, text).apply()


def refused(root: Path, text: str) -> str:
    before = read_tree(root)
    with pytest.raises(RespondToModel) as caught:
        apply(root, text)
    assert read_tree(root) == before
    return str(caught.value)


# -- what is applied --------------------------------------------------------------------------

FUNCTIONS = b"def a():\n    x = 1\n    y = 0\n\ndef b():\n    x = 1\n    y = 0\n"
CLASSES = (
    b"class A:\n    def f(self):\n        return 1\n\n"
    b"class B:\n    def f(self):\n        return 1\n"
)

APPLIED = {
    "add": ({}, ["*** Add File: n.txt", "+one", "+two"], {"n.txt": b"one\ntwo\n"}, "A n.txt\n"),
    "add with folders": (
        {},
        ["*** Add File: a/b/n.txt", "+x"],
        {"a/b/n.txt": b"x\n"},
        "A a/b/n.txt\n",
    ),
    "add empty": ({}, ["*** Add File: __init__.py"], {"__init__.py": b""}, "A __init__.py\n"),
    "add blank lines": ({}, ["*** Add File: n", "+", "+", "+x"], {"n": b"\n\nx\n"}, "A n\n"),
    "add replaces and says so": (
        {"n": b"1\n2\n3\n"},
        ["*** Add File: n", "+x"],
        {"n": b"x\n"},
        "R n (replaced 3 lines)\n",
    ),
    "add replaces one line": (
        {"n": b"1\n"},
        ["*** Add File: n", "+x"],
        {"n": b"x\n"},
        "R n (replaced 1 line)\n",
    ),
    "add replaces an unterminated file": (
        {"n": b"1\n2"},
        ["*** Add File: n", "+1", "+2"],
        {"n": b"1\n2\n"},
        "R n (replaced 2 lines)\n",
    ),
    "add keeps CRLF of what it replaces": (
        {"n": b"1\r\n2\r\n"},
        ["*** Add File: n", "+1", "+x", "+y"],
        {"n": b"1\r\nx\r\ny\r\n"},
        "R n (replaced 2 lines)\n",
    ),
    "add of what is there": (
        {"n": b"x\n"},
        ["*** Add File: n", "+x"],
        {"n": b"x\n"},
        "n: unchanged, it is already as the patch wants it\n",
    ),
    "delete": ({"n": b"x\n", "m": b""}, ["*** Delete File: n"], {"m": b""}, "D n\n"),
    "update": (
        {"a.py": b"1\n2\n3\n"},
        ["*** Update File: a.py", "@@", " 1", "-2", "+two", " 3"],
        {"a.py": b"1\ntwo\n3\n"},
        "M a.py\n",
    ),
    "first chunk without @@": (
        {"a": b"1\n2\n"},
        ["*** Update File: a", "-2", "+two"],
        {"a": b"1\ntwo\n"},
        "M a\n",
    ),
    "several chunks": (
        {"a": b"1\n2\n3\n4\n5\n"},
        ["*** Update File: a", "@@", "-1", "@@", "-3", "+x", "+y", "@@", " 5", "+6"],
        {"a": b"2\nx\ny\n4\n5\n6\n"},
        "M a\n",
    ),
    "runs in one chunk": (
        {"a": b"1\n2\n3\n4\n"},
        ["*** Update File: a", "-1", "+x", " 2", "-3", " 4", "+5"],
        {"a": b"x\n2\n4\n5\n"},
        "M a\n",
    ),
    "all kinds, listed A M R D": (
        {"d": b"", "m": b"1\n", "r": b"1\n"},
        [
            *("*** Delete File: d", "*** Update File: m", "-1", "+2", "*** Add File: r", "+x"),
            *("*** Add File: n", "+y"),
        ],
        {"m": b"2\n", "r": b"x\n", "n": b"y\n"},
        "A n\nM m\nR r (replaced 1 line)\nD d\n",
    ),
    "blank lines between operations": (
        {"d": b"", "m": b"1\n"},
        ["", "*** Delete File: d", "", "*** Update File: m", "", "@@", "-1", "+2", "", ""],
        {"m": b"2\n"},
        "M m\nD d\n",
    ),
    "blank line is blank context": (
        {"a": b"1\n\n2\n"},
        ["*** Update File: a", " 1", "", "-2", "+x"],
        {"a": b"1\n\nx\n"},
        "M a\n",
    ),
    "unified diff header is only a header": (
        {"a": b"1\n2\n"},
        ["*** Update File: a", "@@ -7,2 +7,2 @@ def f", " 1", "-2", "+x"],
        {"a": b"1\nx\n"},
        "M a\n",
    ),
    "move only": (
        {"a": b"1\n"},
        ["*** Update File: a", "*** Move to: s/b"],
        {"s/b": b"1\n"},
        "M s/b\n",
    ),
    "move and change": (
        {"a": b"1\n2\n"},
        ["*** Update File: a", "*** Move to: b", "@@", "-2", "+x"],
        {"b": b"1\nx\n"},
        "M b\n",
    ),
    "move replaces and says so": (
        {"a": b"1\n", "b": b"x\ny\n"},
        ["*** Update File: a", "*** Move to: b"],
        {"b": b"1\n"},
        "R b (replaced 2 lines)\n",
    ),
    "anchor decides": (
        {"a.py": FUNCTIONS},
        ["*** Update File: a.py", "@@ def b():", "-    x = 1", "+    x = 2"],
        {"a.py": b"def a():\n    x = 1\n    y = 0\n\ndef b():\n    x = 2\n    y = 0\n"},
        "M a.py\n",
    ),
    "first anchor decides for the first place below it": (
        {"a.py": FUNCTIONS},
        ["*** Update File: a.py", "@@ def a():", "-    y = 0", "+    y = 2"],
        {"a.py": b"def a():\n    x = 1\n    y = 2\n\ndef b():\n    x = 1\n    y = 0\n"},
        "M a.py\n",
    ),
    "anchor repeated as context": (
        {"a.py": FUNCTIONS},
        ["*** Update File: a.py", "@@ def b():", " def b():", "-    x = 1", "+    x = 2"],
        {"a.py": b"def a():\n    x = 1\n    y = 0\n\ndef b():\n    x = 2\n    y = 0\n"},
        "M a.py\n",
    ),
    "anchor repeated for the next chunk": (
        {"a.py": FUNCTIONS},
        [
            *("*** Update File: a.py", "@@ def a():", "-    x = 1", "+    x = 2"),
            *("@@ def a():", "-    y = 0", "+    y = 2"),
        ],
        {"a.py": b"def a():\n    x = 2\n    y = 2\n\ndef b():\n    x = 1\n    y = 0\n"},
        "M a.py\n",
    ),
    "anchor repeated for an equal line": (
        {"a": b"h\nx\nx\n"},
        ["*** Update File: a", "@@ h", "-x", "+1", "@@ h", "-x", "+2"],
        {"a": b"h\n1\n2\n"},
        "M a\n",
    ),
    "nearest of the anchors above": (
        {"a": b"h\nx\nh\n"},
        ["*** Update File: a", " x", " h", "+1", "@@ h", "+2"],
        {"a": b"h\nx\nh\n1\n2\n"},
        "M a\n",
    ),
    "stacked anchors": (
        {"a.py": CLASSES},
        [
            *("*** Update File: a.py", "@@ class B:", "@@     def f(self):"),
            *("-        return 1", "+        return 2"),
        ],
        {"a.py": CLASSES[:-9] + b"return 2\n"},
        "M a.py\n",
    ),
    "anchor by its beginning": (
        {"a.py": b"class AB(X):\n    x = 1\nclass A(X):\n    x = 1\n"},
        ["*** Update File: a.py", "@@ class A", "-    x = 1", "+    x = 2"],
        {"a.py": b"class AB(X):\n    x = 1\nclass A(X):\n    x = 2\n"},
        "M a.py\na.py line 3: anchor '@@ class A' applied by: beginning of the line\n",
    ),
    "cursor makes the second one unique": (
        {"a": b"1\nx\n2\nx\n"},
        ["*** Update File: a", " 2", "-x", "+y"],
        {"a": b"1\nx\n2\ny\n"},
        "M a\n",
    ),
    "equal chunks in order": (
        {"a": b"h\nx\nx\n"},
        ["*** Update File: a", " h", "-x", "+1", "@@", "-x", "+2"],
        {"a": b"h\n1\n2\n"},
        "M a\n",
    ),
    "pure addition goes below its anchor": (
        {"a.py": FUNCTIONS},
        ["*** Update File: a.py", "@@ def a():", "+    z = 5"],
        {"a.py": b"def a():\n    z = 5\n    x = 1\n    y = 0\n\n" + FUNCTIONS[30:]},
        "M a.py\n",
    ),
    "two pure additions below one anchor": (
        {"a": b"h\nt\n"},
        ["*** Update File: a", "@@ h", "+1", "@@ h", "+2"],
        {"a": b"h\n1\n2\nt\n"},
        "M a\n",
    ),
    "pure addition without anchor goes to the end": (
        {"a": b"1\n"},
        ["*** Update File: a", "@@", "+2"],
        {"a": b"1\n2\n"},
        "M a\n",
    ),
    "pure addition with end of file": (
        {"a": b"1\n2\n"},
        ["*** Update File: a", "@@ 1", "+3", "*** End of File"],
        {"a": b"1\n2\n3\n"},
        "M a\n",
    ),
    "pure addition to an empty file": (
        {"a": b""},
        ["*** Update File: a", "+1"],
        {"a": b"1\n"},
        "M a\n",
    ),
    "end of file decides": (
        {"a": b"x\n1\nx\n"},
        ["*** Update File: a", "@@", "-x", "+y", "*** End of File"],
        {"a": b"x\n1\ny\n"},
        "M a\n",
    ),
    "trailing whitespace ignored": (
        {"a": b"1  \n2\n"},
        ["*** Update File: a", " 1", "-2", "+x"],
        {"a": b"1  \nx\n"},
        "M a\na line 1: applied by: trailing whitespace\n",
    ),
    "indentation ignored, the file's is taken": (
        {"a": b"if 1:\n        f(1)\n        g(1)\n"},
        ["*** Update File: a", "     f(1)", "-    g(1)", "+    if x:", "+        g(2)"],
        {"a": b"if 1:\n        f(1)\n        if x:\n            g(2)\n"},
        "M a\na line 2: applied by: whitespace\n",
    ),
    "indentation lost altogether": (
        {"a": b"if 1:\n    f(1)\n    g(1)\n"},
        ["*** Update File: a", " f(1)", "-g(1)", "+g(2)"],
        {"a": b"if 1:\n    f(1)\n    g(2)\n"},
        "M a\na line 2: applied by: whitespace\n",
    ),
    "indentation lost at two depths": (
        {"a": b"    f()\n    if 2:\n        g()\n"},
        ["*** Update File: a", " f()", " if 2:", "-g()", "+g(2)"],
        {"a": b"    f()\n    if 2:\n        g(2)\n"},
        "M a\na line 1: applied by: whitespace\n",
    ),
    "spaces for tabs": (
        {"a": b"if 1:\n\tf(1)\n\tg(1)\n"},
        ["*** Update File: a", "     f(1)", "-    g(1)", "+    if x:", "+        g(2)", "+if y:"],
        {"a": b"if 1:\n\tf(1)\n\tif x:\n\t\tg(2)\nif y:\n"},
        "M a\na line 2: applied by: whitespace\n",
    ),
    "tabs for spaces": (
        {"a": b"if 1:\n  f(1)\n  g(1)\n"},
        ["*** Update File: a", " \tf(1)", "-\tg(1)", "+\tif x:", "+\t\tg(2)"],
        {"a": b"if 1:\n  f(1)\n  if x:\n    g(2)\n"},
        "M a\na line 2: applied by: whitespace\n",
    ),
    "dedent": (
        {"a": b"    if 1:\n        f(1)\n"},
        ["*** Update File: a", "-    f(1)", "+    f(2)", "+g()"],
        {"a": b"    if 1:\n        f(2)\n    g()\n"},
        "M a\na line 2: applied by: whitespace\n",
    ),
    "punctuation folded": (
        {"a": "s = \u201cit\u2019s\u201d \u2013 ok\n2\n".encode()},
        ["*** Update File: a", ' s = "it\'s" - ok', "-2", "+x"],
        {"a": "s = \u201cit\u2019s\u201d \u2013 ok\nx\n".encode()},
        "M a\na line 1: applied by: punctuation\n",
    ),
    "accents in one sign or two": (
        {"a": "cafe\u0301 = 1\n2\n".encode()},
        ["*** Update File: a", " caf\u00e9 = 1", "-2", "+x"],
        {"a": "cafe\u0301 = 1\nx\n".encode()},
        "M a\na line 1: applied by: punctuation\n",
    ),
    "exact is preferred to fuzzy": (
        {"a": b"  x\nx\n"},
        ["*** Update File: a", "-x", "+y"],
        {"a": b"  x\ny\n"},
        "M a\n",
    ),
    "CRLF kept": (
        {"a": b"1\r\n2\r\n"},
        ["*** Update File: a", " 1", "-2", "+x", "+y"],
        {"a": b"1\r\nx\r\ny\r\n"},
        "M a\n",
    ),
    "mixed ends kept per line": (
        {"a": b"1\n2\r\n3\n4\r\n"},
        ["*** Update File: a", " 1", "-2", "-3", "+x", "+y", "@@", " 4", "+5"],
        {"a": b"1\nx\r\ny\n4\r\n5\r\n"},
        "M a\n",
    ),
    "BOM kept": (
        {"a": b"\xef\xbb\xbf1\n2\n"},
        ["*** Update File: a", "-1", "+x"],
        {"a": b"\xef\xbb\xbfx\n2\n"},
        "M a\n",
    ),
    "missing final newline kept": (
        {"a": b"1\n2\n3"},
        ["*** Update File: a", "-1", "+x", " 2", " 3"],
        {"a": b"x\n2\n3"},
        "M a\n",
    ),
    "changed last line gets its newline": (
        {"a": b"1\n2"},
        ["*** Update File: a", "-2", "+x"],
        {"a": b"1\nx\n"},
        "M a\n",
    ),
    "lines below an unterminated one": (
        {"a": b"1\r\n2"},
        ["*** Update File: a", "@@", "+3"],
        {"a": b"1\r\n2\r\n3\r\n"},
        "M a\n",
    ),
    "unterminated last line removed": (
        {"a": b"1\n2"},
        ["*** Update File: a", "-2"],
        {"a": b"1\n"},
        "M a\n",
    ),
    "all lines removed": ({"a": b"1\n2"}, ["*** Update File: a", "-1", "-2"], {"a": b""}, "M a\n"),
    "odd line separators are no line ends": (
        {"a": "1\x0b\x0c\u2028\x85z\n2\n".encode()},
        ["*** Update File: a", " 1\x0b\x0c\u2028\x85z", "-2", "+x"],
        {"a": "1\x0b\x0c\u2028\x85z\nx\n".encode()},
        "M a\n",
    ),
    "text that looks like a marker": (
        {"a": b"*** End Patch\n@@ x\n2\n"},
        ["*** Update File: a", " *** End Patch", " @@ x", "-2", "+*** Begin Patch"],
        {"a": b"*** End Patch\n@@ x\n*** Begin Patch\n"},
        "M a\n",
    ),
    "nothing to change": (
        {"a": b"1\n"},
        ["*** Update File: a", "-1", "+1"],
        {"a": b"1\n"},
        "a: unchanged, it is already as the patch wants it\n",
    ),
    "path with spaces": (
        {"my file.txt": b"1\n"},
        ["*** Update File: my file.txt ", "-1", "+2"],
        {"my file.txt": b"2\n"},
        "M my file.txt\n",
    ),
}


@pytest.mark.parametrize("case", APPLIED)
def test_patch_makes_the_tree(case: str, tmp_path: Path) -> None:
    before, body, after, listed = APPLIED[case]
    write_tree(tmp_path, before)
    result = apply(tmp_path, patch(*body))
    assert files(read_tree(tmp_path)) == after
    assert result.summary == SUCCESS + listed


@pytest.mark.parametrize(
    "wrap",
    [
        "{}",
        "\n\n{}\n\n",
        "{}\n",
        "apply_patch <<'EOF'\n{}\nEOF\n",
        "apply_patch <<EOF\n{}\nEOF",
        'apply_patch << "PATCH"\n{}\nPATCH\n',
        "<<'EOF'\n{}\nEOF",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_wrapped_patch_is_unwrapped(wrap: str, end: str) -> None:
    text = wrap.format(patch("*** Add File: a", "+1", "*** Delete File: b")).replace("\n", end)
    add, delete = parse_patch(text)
    assert (add.path, add.lines, delete.path) == ("a", ("1",), "b")


def test_operations_are_typed_and_know_their_lines() -> None:
    text = patch("*** Add File: a", "+1", "*** Delete File: b", "*** Update File: c")
    text = text.replace(
        "*** End Patch", "*** Move to: d\n@@ x\n@@ y\n 1\n-2\n+3\n*** End of File\n*** End Patch"
    )
    chunk = Chunk(((" ", "1"), ("-", "2"), ("+", "3")), ("x", "y"), True, 7)
    assert parse_patch(text) == (
        AddFile("a", ("1",), 2),
        DeleteFile("b", 4),
        UpdateFile("c", (chunk,), "d", 5),
    )


# -- what is refused --------------------------------------------------------------------------

SYNTAX = {
    "empty": ("", "line 1 of the patch: the patch is empty; its first line must be"),
    "no operation": (patch(), "the patch is empty; between its first and last line it needs"),
    "prose": ("Here it is:\n" + patch(), "line 1 of the patch: the first line must be"),
    "fence": (f"```\n{patch()}\n```", "line 1 of the patch: the first line must be"),
    "no end": (
        "*** Begin Patch\n*** Add File: a\n+1",
        "line 3 of the patch: the last line must be '*** End Patch', not '+1'",
    ),
    "text after the end": (
        patch("*** Delete File: a") + "\nDone!",
        "line 4 of the patch: nothing may follow '*** End Patch', but there is 'Done!'",
    ),
    "unknown header": (
        patch("*** Frobnicate File: a"),
        "line 2 of the patch: '*** Frobnicate File: a' starts no operation; expected '*** Add File",
    ),
    "no path": (
        patch("*** Add File:  ", "+1"),
        "line 2 of the patch: '*** Add File:' names no path",
    ),
    "added line without plus": (
        patch("*** Add File: a", "+1", "2"),
        "line 4 of the patch: every line of an added file starts with '+', not '2'",
    ),
    "delete with lines": (
        patch("*** Delete File: a", "-1"),
        "line 3 of the patch: '*** Delete File:' takes no lines",
    ),
    "empty update": (
        patch("*** Update File: a"),
        "line 2 of the patch: '*** Update File: a' says neither what to change nor where",
    ),
    "empty chunk": (
        patch("*** Update File: a", "@@ x", "*** End of File"),
        "line 3 of the patch: the chunk has no lines",
    ),
    "line without sign": (
        patch("*** Update File: a", " 1", "def f():"),
        "line 4 of the patch: 'def f():' must start with ' '",
    ),
    "anchor without space": (
        patch("*** Update File: a", "@@def f", "-1"),
        "line 3 of the patch: after '@@' comes a space",
    ),
    "only line numbers for an addition": (
        patch("*** Update File: a", "@@ -1,0 +2,1 @@", "+1"),
        "line 3 of the patch: line numbers are not used",
    ),
    "late move": (
        patch("*** Update File: a", "-1", "*** Move to: b"),
        "line 4 of the patch: '*** Move to:' must stand right below '*** Update File: PATH'",
    ),
    "move of nothing": (
        patch("*** Move to: b"),
        "line 2 of the patch: '*** Move to:' must stand right below",
    ),
    "unknown marker in an update": (
        patch("*** Update File: a", "-1", "*** Frob"),
        "line 4 of the patch: '*** Frob' is no header",
    ),
    "NUL": (patch("*** Add File: a", "+\0"), "line 3 of the patch: it holds a NUL character"),
    "surrogate": (patch("*** Add File: \ud800", "+"), "line 2 of the patch: it holds half of a"),
    "two patches": (
        patch("*** Delete File: a") + "\n" + patch("*** Delete File: b"),
        "line 3 of the patch: '*** Delete File:' takes no lines",
    ),
}


@pytest.mark.parametrize("case", SYNTAX)
def test_syntax_error_names_line_and_reason(case: str, tmp_path: Path) -> None:
    text, message = SYNTAX[case]
    write_tree(tmp_path, {"a": b"1\n", "b": b"2\n"})
    answer = refused(tmp_path, text)
    assert answer.startswith("The patch was not applied: line ")
    assert message in answer


OTHERWISE = "; change or remove it with Python or a command"
ELSEWHERE = f"a cannot be patched: it is binary (it holds NUL bytes){OTHERWISE}"

REFUSED = {
    "ambiguous": (
        {"a.py": FUNCTIONS},
        ["*** Update File: a.py", "-    x = 1", "+    x = 2"],
        "a.py: the chunk at line 3 of the patch fits in several places: "
        "its lines are at lines 2, 6; add lines",
    ),
    "ambiguous anchor": (
        {"a.py": CLASSES},
        ["*** Update File: a.py", "@@     def f(self):", "-        return 1", "+        return 2"],
        "fits in several places: its lines are at lines 3, 7",
    ),
    "ambiguous anchor of an addition": (
        {"a.py": CLASSES},
        ["*** Update File: a.py", "@@     def f(self):", "+        pass"],
        "'@@     def f(self):' is at lines 2, 6",
    ),
    "ambiguous whitespace": (
        {"a": b"  x\n\tx\n"},
        ["*** Update File: a", "-x", "+y"],
        "its lines are at lines 1, 2",
    ),
    "miss shows the nearest lines": (
        {"a.py": b"import os\n\ndef f():\n    return 1\n"},
        ["*** Update File: a.py", " def f():", "-    retrun 1", "+    return 2"],
        "a.py: the chunk at line 3 of the patch was not found. It expects:\n"
        "def f():\n    retrun 1\nNearest lines of the file:\n"
        "   2| \n   3| def f():\n   4|     return 1",
    ),
    "miss by words": (
        {"a": b"alpha\nbeta gamma\ndelta\n"},
        ["*** Update File: a", "-gamma beta", "+x"],
        "   1| alpha\n   2| beta gamma\n   3| delta",
    ),
    "miss in an empty file": ({"a": b""}, ["*** Update File: a", "-x", "+y"], "the file is empty"),
    "missing anchor": (
        {"a": b"def f():\n    1\n"},
        ["*** Update File: a", "@@ def missing():", "-    1", "+    2"],
        "no line is '@@ def missing():'; nearest lines of the file:\n   1| def f():",
    ),
    "missing inner anchor": (
        {"a.py": CLASSES},
        ["*** Update File: a.py", "@@ class B:", "@@     def g(self):", "+        pass"],
        "no line below line 5 is '@@     def g(self):'",
    ),
    "wrong order": (
        {"a": b"1\n2\n"},
        ["*** Update File: a", "-2", "+x", "@@", "-1", "+y"],
        "its lines stand at line 1, above the end of the chunk before it",
    ),
    "addition above the chunk before it": (
        {"a": b"h\n1\n2\n"},
        ["*** Update File: a", "-2", "+x", "@@ h", "+y"],
        "'@@ h' is line 1, above the end of the chunk before it",
    ),
    "not at the end": (
        {"a": b"1\n2\n"},
        ["*** Update File: a", "-1", "+x", "*** End of File"],
        "its lines stand at line 1, which is not the end of the file",
    ),
    "above its anchor": (
        {"a": b"1\nh\n"},
        ["*** Update File: a", "@@ h", "-1", "+x"],
        "was not found below '@@ h': its lines stand at line 1",
    ),
    "begins above its anchor": (
        {"a": b"a\nh\na\n"},
        ["*** Update File: a", "@@ h", " a", "-h", "+x"],
        "was not found below '@@ h': its lines stand at line 1",
    ),
    "applied already": (
        {"a": b"0\nnew line\n"},
        ["*** Update File: a", "-old line", "+new line"],
        "what it would make is already there, at line 2",
    ),
    "no such file": (
        {"alpha.py": b""},
        ["*** Update File: alphas.py", "-1"],
        "alphas.py cannot be updated: there is no such file; beside it there is alpha.py",
    ),
    "nothing to delete": ({}, ["*** Delete File: a"], "a cannot be removed: there is no such file"),
    "move onto itself": (
        {"a": b"1\n"},
        ["*** Update File: a", "*** Move to: ./a", "@@", "-1", "+2"],
        "line 3 of the patch: a would be moved onto itself",
    ),
    "one file under two names": (
        {"a": b"1\n"},
        ["*** Update File: a", "-1", "+2", "*** Delete File: ./a"],
        "line 5 of the patch: ./a is already the subject of line 2 (a)",
    ),
    "delete and add": (
        {"a": b"1\n"},
        ["*** Delete File: a", "*** Add File: a", "+2"],
        "line 3 of the patch: a is already the subject of line 2 (a)",
    ),
    "move to what is added": (
        {"a": b"1\n"},
        ["*** Add File: b", "+2", "*** Update File: a", "*** Move to: b"],
        "line 5 of the patch: b is already the subject of line 2 (b)",
    ),
    "binary": ({"a": b"1\0\n"}, ["*** Update File: a", "-1"], ELSEWHERE),
    "not UTF-8": (
        {"a": b"caf\xe9\n"},
        ["*** Update File: a", "-caf"],
        f"a cannot be patched: it is not UTF-8 text (byte 0xe9 at 3){OTHERWISE}",
    ),
    "add over binary": ({"a": b"\0"}, ["*** Add File: a", "+1"], ELSEWHERE),
    "delete of binary": ({"a": b"\0"}, ["*** Delete File: a"], ELSEWHERE),
    "move over binary": (
        {"a": b"1\n", "b": b"\0"},
        ["*** Update File: a", "*** Move to: b"],
        f"b{ELSEWHERE[1:]}",
    ),
    "notebook": (
        {"n.ipynb": b"{}\n"},
        ["*** Update File: n.ipynb", "-{}"],
        "n.ipynb is a notebook, which is not changed as text: use the notebook tools for the one "
        "that is open, and Python (nbformat) or a command for others",
    ),
    "new notebook": ({}, ["*** Add File: N.IPYNB", "+{}"], "N.IPYNB is a notebook"),
    "name of a folder": (
        {},
        ["*** Add File: d/", "+1"],
        "d/ is the name of a folder; give the file",
    ),
    "move to a new folder": (
        {"a": b"1\n"},
        ["*** Update File: a", "*** Move to: d/"],
        "d/ is the name of a folder; give the file",
    ),
    "directory": ({"d/a": b""}, ["*** Add File: d", "+1"], "d is a directory; only regular files"),
    "below a file": (
        {"a": b""},
        ["*** Add File: a/b", "+1"],
        "a/b: a part of its path is a file, not a folder",
    ),
    "name too long": ({}, [f"*** Add File: {'n' * 300}", "+1"], "cannot be looked at: File name"),
    "one bad of three": (
        {"a": b"1\n", "b": b"1\n"},
        ["*** Add File: n", "+1", "*** Update File: a", "-1", "*** Update File: b", "-2"],
        "nothing was changed.\nb: the chunk",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_patch_changes_nothing_and_says_why(case: str, tmp_path: Path) -> None:
    before, body, message = REFUSED[case]
    write_tree(tmp_path, before)
    answer = refused(tmp_path, patch(*body))
    assert answer.startswith("The patch was not applied")
    assert message in answer


def test_all_operations_at_fault_are_listed(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"1\n"})
    answer = refused(tmp_path, patch("*** Update File: a", "-2", "*** Delete File: b"))
    assert "a: the chunk" in answer
    assert "b cannot be removed" in answer


def test_special_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "real").write_bytes(b"1\n")
    (tmp_path / "link").symlink_to("real")
    for name, kind in (("fifo", "a FIFO"), ("link", "a symbolic link"), ("/dev/null", "a device")):
        operations = parse_patch(patch(f"*** Update File: {name}", "-1", "+2"))
        with pytest.raises(RespondToModel, match=f"{name} is {kind}"):
            plan_patch(operations, lambda name: tmp_path / name)


def test_every_path_is_resolved_before_any_is_read(tmp_path: Path) -> None:
    asked = []

    def resolve(name: str) -> Path:
        asked.append(name)
        if name == "forbidden":
            raise RespondToModel("may not be written")
        return tmp_path / name

    text = patch("*** Delete File: none", "*** Update File: a", "*** Move to: forbidden")
    with pytest.raises(RespondToModel, match="may not be written"):
        plan_patch(parse_patch(text), resolve)
    assert asked == ["none", "a", "forbidden"]


def test_move_onto_a_second_name_of_the_file_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"1\n"})
    os.link(tmp_path / "a", tmp_path / "b")
    assert "onto itself" in refused(tmp_path, patch("*** Update File: a", "*** Move to: b"))


# -- what is kept, what is told ---------------------------------------------------------------


def test_mode_is_kept_and_moves_along(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"1\n", "b": b"1\n", "c": b"1\n"})
    for name, mode in (("a", 0o755), ("b", 0o600), ("c", 0o640)):
        (tmp_path / name).chmod(mode)
    update = ["*** Update File: a", "-1", "+2", "*** Add File: b", "+2", "*** Add File: n"]
    apply(tmp_path, patch(*update, "*** Update File: c", "*** Move to: d"))
    umask = os.umask(0)
    os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"a": 0o755, "b": 0o600, "d": 0o640, "n": 0o666 & ~umask}


def test_diff_of_everything(tmp_path: Path) -> None:
    numbers = "".join(f"{n}\n" for n in range(1, 31)).encode()
    write_tree(tmp_path, {"m": numbers, "d": b"x\ny", "o": b"1\n2", "p": b"p\n"})
    text = patch(
        *("*** Update File: m", "-5", "+five", "+5.5", " 6", "@@", "-20", "@@", " 30", "+31"),
        *("*** Delete File: d", "*** Add File: n", "+1"),
        *("*** Update File: o", "*** Move to: q", "+3", "*** Update File: p", "*** Move to: r"),
    )
    assert apply(tmp_path, text).diff == (
        "--- a/m\n+++ b/m\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+5.5\n 6\n 7\n 8\n"
        "@@ -17,7 +18,6 @@\n 17\n 18\n 19\n-20\n 21\n 22\n 23\n"
        "@@ -28,3 +28,4 @@\n 28\n 29\n 30\n+31\n"
        "--- a/d\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n\\ No newline at end of file\n"
        "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+1\n"
        "rename from o\nrename to q\n--- a/o\n+++ b/q\n@@ -1,2 +1,3 @@\n 1\n-2\n"
        "\\ No newline at end of file\n+2\n+3\n"
        "rename from p\nrename to r\n"
    )


def test_plan_writes_nothing_and_knows_all_paths(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"1\n"})
    planned = plan(tmp_path, patch("*** Update File: a", "*** Move to: b", "*** Add File: n"))
    assert read_tree(tmp_path) == {"a": b"1\n"}
    assert planned.paths == ("b", "a", "n")
    assert planned.apply().paths == ("b", "a", "n")


def test_output_is_cut_to_its_budget(tmp_path: Path) -> None:
    result = apply(tmp_path, patch("*** Add File: n"))
    whole, cut = result.to_output(1000), result.to_output(10)
    assert whole.content == repr(result) == SUCCESS + "A n\n"
    assert whole.details == {"diff": "--- /dev/null\n+++ b/n\n"}
    assert cut.content == f"Success. U\n({len(SUCCESS) - 6} more characters)"


def test_many_notes_are_counted(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"".join(b"%d \n" % n for n in range(50))})
    body = [line for n in range(50) for line in ("@@", f"-{n}", f"+x{n}")]
    lines = apply(tmp_path, patch("*** Update File: a", *body)).summary.splitlines()
    assert lines[-1] == "(30 more notes)"
    assert len(lines) == 23


# -- all or nothing ---------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(5))
def test_failure_at_each_write_rolls_back_everything(place: int, tmp_path: Path) -> None:
    """A file and a folder of one name cannot both be: found out when the file is swapped in."""
    write_tree(tmp_path, {"m": b"1\n", "d": b"2\n", "r": b"3\n", "v": b"4\n"})
    (tmp_path / "m").chmod(0o751)
    inodes = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    operations = [
        ["*** Update File: m", "-1", "+x"],
        ["*** Delete File: d"],
        ["*** Add File: r", "+x"],
        ["*** Update File: v", "*** Move to: new/folder/w"],
    ]
    operations.insert(place, ["*** Add File: x", "+1", "*** Add File: x/y", "+1"])
    answer = refused(tmp_path, patch(*(line for operation in operations for line in operation)))
    assert "x is a directory" in answer
    assert "Nothing was changed" in answer
    # The very same files are back, not copies of them.
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == inodes
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o751


def test_parent_that_became_a_file_stops_all(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"1\n"})
    planned = plan(tmp_path, patch("*** Update File: a", "-1", "+2", "*** Add File: d/n", "+1"))
    (tmp_path / "d").write_bytes(b"in the way\n")
    with pytest.raises(RespondToModel, match="d/n: a part of its path is a file"):
        planned.apply()
    assert read_tree(tmp_path) == {"a": b"1\n", "d": b"in the way\n"}


def test_disk_refusal_rolls_back(tmp_path: Path) -> None:
    """The second file is larger than this process may write at all (EFBIG)."""
    write_tree(tmp_path, {"a": b"1\n"})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    text = patch("*** Update File: a", "-1", "*** Add File: d/n", "+" + "x" * 5000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        answer = refused(tmp_path, text)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "d/n cannot be written (File too large); nothing was changed" in answer


def test_a_path_longer_than_the_system_takes_at_once(tmp_path: Path) -> None:
    """A path is walked name by name, so that its length does not matter."""
    room = os.pathconf("/", "PC_PATH_MAX") - len(str(tmp_path)) - 10
    folders = re.sub("p{199}p(?=p)", "p" * 199 + "/", "p" * room)
    assert apply(tmp_path, patch(f"*** Add File: {folders}/n", "+1")).paths == (f"{folders}/n",)
    assert (tmp_path / folders / "n").read_bytes() == b"1\n"


@pytest.mark.parametrize("became", ["changed", "gone", "directory", "fifo", "link", "new file"])
def test_what_changed_since_the_plan_is_not_overwritten(became: str, tmp_path: Path) -> None:
    write_tree(tmp_path, {"a": b"1\n", "b": b"1\n"})
    add = "*** Add File: n"
    planned = plan(tmp_path, patch("*** Update File: a", "-1", "+2", "*** Delete File: b", add))
    changed = tmp_path / ("n" if became == "new file" else "b")
    changed.unlink(missing_ok=True)
    if became == "directory":
        changed.mkdir()
    elif became == "fifo":
        os.mkfifo(changed)
    elif became == "link":
        changed.symlink_to("a")
    elif became != "gone":
        changed.write_bytes(b"somebody's work\n")
    names = sorted(tmp_path.iterdir())
    with pytest.raises(RespondToModel, match=r"was not applied.*Nothing was changed"):
        planned.apply()
    assert sorted(tmp_path.iterdir()) == names
    assert (tmp_path / "a").read_bytes() == b"1\n"
    if became in ("changed", "new file"):
        assert changed.read_bytes() == b"somebody's work\n"


# -- properties -------------------------------------------------------------------------------

LINE = st.text(st.sampled_from("ab \t-+@*(“\u00a0é"), max_size=6)
LINES = st.lists(LINE, max_size=12)
ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def edited_files(draw: st.DrawFn) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(line, end) pairs of a file, and (sign, text) pairs that change it."""
    content = [(line, draw(ENDS)) for line in draw(LINES)]
    changes = []
    for line, _ in content:
        changes += [("+", new) for new in draw(st.lists(LINE, max_size=2))]
        changes.append((draw(st.sampled_from(" -  ")), line))
    changes += [("+", new) for new in draw(st.lists(LINE, max_size=2))]
    return content, changes


def new_lines(changes: list[tuple[str, str]]) -> list[str]:
    return [text for sign, text in changes if sign != "-"]


@given(edited_files(), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_patch_of_the_whole_file_makes_exactly_the_edited_file(edited, bom, terminated) -> None:
    content, changes = edited
    if not changes:
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        text = "".join(line + end for line, end in content)
        if not terminated and content and content[-1][0]:
            text = text.removesuffix(content[-1][1])
        data = ("\ufeff" * bom + text).encode()
        (root / "f").write_bytes(data)
        apply(root, patch("*** Update File: f", "@@", *(sign + line for sign, line in changes)))
        after = (root / "f").read_bytes().decode()
        assert after.startswith("\ufeff") == bom
        body = after.removeprefix("\ufeff")
        assert [line.removesuffix("\r") for line in body.split("\n")[:-1]] + (
            [body.rpartition("\n")[2]] if not body.endswith("\n") and body else []
        ) == new_lines(changes)
        kept = [pair for pair, change in zip(content, _old(changes), strict=True) if change == " "]
        ends = set(re.findall(r"\r?\n", body))
        assert ends <= {end for _, end in content} | {"\n"}
        assert all(f"{line}{end}" in text for line, end in kept[:-1])
        if {end for _, end in content} == {"\r\n"} and len(content) > 1:
            assert ends <= {"\r\n"}
        if not any(sign != " " for sign, _ in changes):
            assert after.encode() == data


def _old(changes: list[tuple[str, str]]) -> list[str]:
    return [sign for sign, _ in changes if sign != "+"]


def small_chunks(changes: list[tuple[str, str]], context: int) -> list[str]:
    """The changes as chunks with at most `context` lines around them."""
    near = {
        n + shift
        for n, (sign, _) in enumerate(changes)
        if sign != " "
        for shift in range(-context, context + 1)
    }
    body: list[str] = []
    last = -2
    for n in sorted(near & set(range(len(changes)))):
        if n != last + 1:
            body.append("@@")
        body.append("".join(changes[n]))
        last = n
    return body


@given(edited_files(), st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_patch_with_little_context_is_right_or_refused(edited, context) -> None:
    """Exact matches are unique or refused; so a chunk with old lines never lands elsewhere.

    A chunk of added lines alone has no place of its own: the file's end is where it goes.
    """
    content, changes = edited
    body = small_chunks(changes, context)
    if not body or any(
        {sign for sign, _ in chunk.lines} == {"+"}
        for chunk in parse_patch(patch("*** Update File: f", *body))[0].chunks
    ):
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        data = "".join(line + "\n" for line, _ in content).encode()
        (root / "f").write_bytes(data)
        try:
            apply(root, patch("*** Update File: f", *body))
        except RespondToModel:
            assert (root / "f").read_bytes() == data
        else:
            expected = "".join(line + "\n" for line in new_lines(changes))
            assert (root / "f").read_bytes() == expected.encode()


VALID = patch(
    *("*** Update File: m", "@@ def f():", "     one = 1", "-    two = 2", "+    two = 3"),
    *("@@ def g():", " ", "+    three = 3", "*** Delete File: d", "*** Add File: n", "+new"),
    *("*** Update File: v", "*** Move to: w", " left", "-right", "*** End of File"),
)
BEFORE = {
    "m": b"def f():\n    one = 1\n    two = 2\n\ndef g():\n\n    pass\n",
    "d": b"gone\n",
    "v": b"left\nright\n",
}
CORRUPTION = st.tuples(
    st.sampled_from(["delete", "insert", "replace", "drop line", "double line"]),
    st.integers(0, len(VALID) - 1),
    st.sampled_from(string.printable + "\0“\ud800"),
)


def corrupt(text: str, how: str, at: int, character: str) -> str:
    if how == "delete":
        return text[:at] + text[at + 1 :]
    if how == "insert":
        return text[:at] + character + text[at:]
    if how == "replace":
        return text[:at] + character + text[at + 1 :]
    lines = text.split("\n")
    number = at % len(lines)
    return "\n".join(lines[:number] + lines[number : number + 1] * 2 * (how == "double line")) + (
        "\n" + "\n".join(lines[number + 1 :])
    )


@given(st.lists(CORRUPTION, min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_corrupted_patch_is_refused_whole_or_still_a_patch(corruptions) -> None:
    text = VALID
    for how, at, character in corruptions:
        text = corrupt(text, how, min(at, len(text)), character)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_tree(root, BEFORE)
        try:
            result = plan_patch(parse_patch(text), lambda name: root / name.strip("/.")).apply()
        except RespondToModel:
            assert read_tree(root) == BEFORE
        else:
            assert result.summary.startswith(SUCCESS)
            assert not [name for name in read_tree(root) if name.endswith(".tmp")]


@given(st.integers(0, 5), st.sampled_from("xyz#"))
@settings(max_examples=50, deadline=None)
def test_context_that_is_not_in_the_file_never_fits(number: int, character: str) -> None:
    lines = [n for n, line in enumerate(VALID.split("\n")) if line[:1] in (" ", "-") and line[1:]]
    broken = VALID.split("\n")
    broken[lines[number % len(lines)]] += character
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), BEFORE)
        assert "was not found" in refused(Path(folder), "\n".join(broken))


def test_valid_patch_of_the_corruption_test_applies(tmp_path: Path) -> None:
    write_tree(tmp_path, BEFORE)
    assert apply(tmp_path, VALID).summary == SUCCESS + "A n\nM m\nM w\nD d\n"
    assert read_tree(tmp_path) == {
        "m": b"def f():\n    one = 1\n    two = 3\n\ndef g():\n\n    three = 3\n    pass\n",
        "n": b"new\n",
        "w": b"left\n",
    }


def test_thousand_chunks_in_a_long_file(tmp_path: Path) -> None:
    lines = [f"value_{n % 7} = {n}" if n % 3 else "" for n in range(100_000)]
    body, after = [], list(lines)
    for n in range(50, 100_000, 100):
        body += ["@@", *(f" {line}" for line in lines[n - 3 : n]), f"-{lines[n]}", f"+new {n}"]
        after[n] = f"new {n}"
    (tmp_path / "a").write_text("\n".join(lines) + "\n", encoding="utf-8")
    apply(tmp_path, patch("*** Update File: a", *body))
    assert (tmp_path / "a").read_text(encoding="utf-8") == "\n".join(after) + "\n"
