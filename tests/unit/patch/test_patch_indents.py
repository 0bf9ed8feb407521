"""A patch that fits but for its indentation writes code that still parses, or nothing."""

import ast
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.patch.grammar import parse_patch
from agent_magics.patch.plan import plan_patch
from agent_magics.protocol.errors import RespondToModel


def patched(folder, before: str, chunk: str, name: str = "a.py") -> str:
    (folder / name).write_text(before, encoding="utf-8")
    text = f"*** Begin Patch\n*** Update File: {name}\n{chunk}\n*** End Patch"
    result = plan_patch(parse_patch(text), folder.joinpath).apply()
    patched.summary = result.summary
    return (folder / name).read_text(encoding="utf-8")


IN_CLASS = "class A:\n    def f(self):\n        x = 1\n        return x\n"
CASES = {
    "the added line is indented, the removed one is not": (
        "-x = 1\n+        x = 2",
        "        x = 2\n",
    ),
    "neither is": ("-x = 1\n+x = 2", "        x = 2\n"),
    "a block, none of it": ("-x = 1\n+if y:\n+    x = 2", "        if y:\n            x = 2\n"),
    "a block, all of it": (
        "-x = 1\n+        if y:\n+            x = 2",
        "        if y:\n            x = 2\n",
    ),
    "the first line is, the second is not": (
        "-x = 1\n+        x = 2\n+y = 3",
        "        x = 2\n        y = 3\n",
    ),
    "context is indented otherwise": (
        " def f(self):\n-x = 1\n+        x = 2",
        "        x = 2\n",
    ),
    "one level only": ("-    x = 1\n+    x = 2", "        x = 2\n"),
    "tabs": ("-\tx = 1\n+\tx = 2", "        x = 2\n"),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_the_patch_did_not_indent_is_indented(tmp_path, case):
    chunk, expected = CASES[case]
    after = patched(tmp_path, IN_CLASS, chunk)
    assert after == IN_CLASS.replace("        x = 1\n", expected)
    assert "applied by: whitespace" in patched.summary


@pytest.mark.parametrize(
    "chunk",
    [
        "-x = 1\n+if y:",
        "-x = 1\n+                x = 2",
        " def f(self):\n-x = 1\n-return x\n+",
        "-x = 1\n+    x = (",
    ],
)
def test_what_would_not_parse_any_more_is_refused_with_its_line(tmp_path, chunk):
    with pytest.raises(RespondToModel, match=r"a\.py.*line \d+.*Python"):
        patched(tmp_path, IN_CLASS, chunk)
    assert (tmp_path / "a.py").read_text(encoding="utf-8") == IN_CLASS


def test_an_exact_patch_may_leave_a_file_that_does_not_parse_and_says_so(tmp_path):
    patched(tmp_path, IN_CLASS, "-        x = 1\n+        x = (")
    assert "a.py" in patched.summary and "Python" in patched.summary


def test_what_did_not_parse_before_is_not_looked_at(tmp_path):
    patched(tmp_path, "%magic\n    x = 1\n", "-x = 1\n+if y:")
    assert "Python" not in patched.summary


def test_files_of_other_languages_are_left_alone(tmp_path):
    assert patched(tmp_path, "a:\n    x = 1\n", "-x = 1\n+if y:", "a.txt") == "a:\n    if y:\n"


statements = st.sampled_from(["x = 1", "y = [\n    2,\n]", "if x:\n    y = 2", "pass", "f(x)"])


@given(
    before=st.lists(statements, min_size=1, max_size=4, unique=True),
    added=st.lists(statements, min_size=1, max_size=3),
    depth=st.integers(0, 3),
    wrote=st.integers(0, 4).map(lambda n: " " * n * 2),
    own=st.booleans(),
    at=st.integers(0, 3),
)
def test_a_shifted_patch_gives_what_the_unshifted_one_gives_or_is_refused(
    tmp_path_factory, before, added, depth, wrote, own, at
):
    """Whatever the indentation of the removed lines, and whosever that of the added ones."""
    folder = tmp_path_factory.mktemp("shifted")
    heads = "".join(f"{'    ' * n}if a{n}:\n" for n in range(depth))
    indent = "    " * depth
    whole = heads + "".join(textwrap.indent(s, indent) + "\n" for s in before)
    old = before[at % len(before)]
    new = "\n".join(added)
    removed = textwrap.indent(old, wrote)
    put = textwrap.indent(new, indent if own else wrote)
    chunk = "\n".join([*(f"-{line}" for line in removed.split("\n"))])
    chunk += "\n" + "\n".join(f"+{line}" for line in put.split("\n"))
    try:
        after = patched(folder, whole, chunk)
    except RespondToModel:
        return
    ast.parse(after)
    if not own:
        exact = "".join(textwrap.indent(new if s == old else s, indent) + "\n" for s in before)
        assert after == heads + exact
