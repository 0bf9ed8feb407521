"""Unified diffs: what git writes applies as git applies it, and what cannot be done is refused."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.file_history.diff import file_diff
from agent_magics.file_history.states import ABSENT, PathState, digest_of
from agent_magics.patch.plan import plan_patch, read_patch
from agent_magics.protocol.errors import RespondToModel

# Few different lines, so that many places are alike.
LINES = st.lists(st.sampled_from(["a", "b", "", "  c", "-- d", "++ e", "@@ f", "é"]), max_size=25)
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))
# Names that git quotes, and names that look like prefixes of ours.
NAMES = st.sampled_from(
    ["f", "a/f", "b/a/b", "with space", "späte", 'quo"te', "tab\there", "back\\s"]
)
COMMIT = ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--allow-empty", "-mx"]
TREES = st.dictionaries(NAMES, TEXTS, max_size=4)


def apply(text: str, folder: Path) -> str:
    return plan_patch(read_patch(text), folder.joinpath).apply().summary


def write_tree(folder: Path, tree: dict[str, str]) -> None:
    for name, text in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


def read_tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file()
    }


def git(folder: Path, *arguments: str, check: bool = True, **more) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "core.autocrlf=false", *arguments]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=check, **more)
    return done.stdout.decode()


def diff_of(folder: Path, old: dict[str, str], new: dict[str, str], *options: str) -> str:
    """What git says to get from one tree to the other."""
    write_tree(folder / "old", old)
    write_tree(folder / "new", new)
    for name in ("old", "new"):
        (folder / name).mkdir(exist_ok=True)
    # (1: they differ)
    text = git(folder, "diff", "--no-index", *options, "old", "new", check=False)
    return (
        text.replace("a/old/", "a/")
        .replace("b/new/", "b/")
        .replace("a/new/", "a/")
        .replace("b/old/", "b/")
    )


@settings(max_examples=80, deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 4))
def test_any_change_of_a_file_applies_to_exactly_that(tmp_path_factory, old, new, context):
    folder = tmp_path_factory.mktemp("unified")
    diff = diff_of(folder, {"f": old}, {"f": new}, f"-U{context}")
    if not diff:
        assert old == new
        return
    apply(diff, folder / "old")
    assert (folder / "old/f").read_bytes().decode() == new


@settings(max_examples=25, deadline=None)
@given(TREES, TREES)
def test_any_change_of_a_tree_applies_to_exactly_that(tmp_path_factory, old, new):
    """Files added, removed, renamed and changed, under names that git quotes."""
    folder = tmp_path_factory.mktemp("trees")
    (folder / "new").mkdir()
    git(folder, "init", "-q", "--separate-git-dir", "git", "new")
    for tree in (old, new):
        for name in read_tree(folder / "new"):
            if name != ".git":
                (folder / "new" / name).unlink()
        write_tree(folder / "new", tree)
        git(folder / "new", "add", "-A")
        git(folder / "new", *COMMIT)
    diff = git(folder / "new", "diff", "-M", "HEAD~", "HEAD")
    (folder / "old").mkdir()
    write_tree(folder / "old", old)
    if diff:
        apply(diff, folder / "old")
    assert read_tree(folder / "old") == new


GREETING = "def greet(name):\n    print('Hi', name)\n    return True\n"


def changed(tmp_path: Path, diff: str, before: str = GREETING, name: str = "g.py") -> str:
    (tmp_path / name).write_text(before, encoding="utf-8")
    apply(diff, tmp_path)
    return (tmp_path / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "head",
    [
        "--- a/g.py\n+++ b/g.py\n",
        "--- g.py\n+++ g.py\n",
        "--- g.py.orig\t2026-01-01 10:00:00\n+++ g.py\t2026-01-02 10:00:00\n",
        "diff --git a/g.py b/g.py\nindex 1..2 100644\n--- a/g.py\n+++ b/g.py\n",
        "Here is the change:\n\n--- a/g.py\n+++ b/g.py\n",
        "From 1 Mon\nSubject: x\n---\n g.py | 2 +-\n\ndiff --git a/g.py b/g.py\n"
        "--- a/g.py\n+++ b/g.py\n",
    ],
)
@pytest.mark.parametrize("ranges", ["-1,3 +1,3", "-2,3 +2,3", "-1,9 +1,2", "-40,3 +40,3"])
@pytest.mark.parametrize("tail", ["", "\n", "-- \n2.39.5\n"])
def test_heads_wrong_numbers_and_tails(tmp_path, head, ranges, tail):
    body = " def greet(name):\n-    print('Hi', name)\n+    print('Ho', name)\n     return True\n"
    diff = f"{head}@@ {ranges} @@\n{body}{tail}"
    assert changed(tmp_path, diff) == GREETING.replace("Hi", "Ho")


@pytest.mark.parametrize(("start", "expected"), [(1, "Xaba"), (4, "abXa")])
def test_the_number_decides_between_equal_places(tmp_path, start, expected):
    text = "".join(f"{letter}\n-\n" for letter in "aba")
    wanted = "".join(f"{letter}\n-\n" for letter in expected.replace("Xa", "X"))
    diff = f"--- a/f\n+++ b/f\n@@ -{start},2 +{start},2 @@\n-a\n+X\n -\n"
    assert changed(tmp_path, diff, text, "f") == wanted


def test_between_places_that_are_equally_far_nothing_is_chosen(tmp_path):
    text = "a\n-\nb\n-\na\n-\n"
    diff = "--- a/f\n+++ b/f\n@@ -3,2 +3,2 @@\n-a\n+X\n -\n"
    with pytest.raises(RespondToModel, match="lines 1, 5"):
        changed(tmp_path, diff, text, "f")
    assert (tmp_path / "f").read_text(encoding="utf-8") == text


def test_the_numbers_of_later_hunks_drift_with_the_first(tmp_path):
    """All numbers are three too small; the second hunk has equal places every five lines."""
    old = [f"{n % 5}" for n in range(40)]
    old[12] = "only"
    new = list(old)
    new[12], new[27] = "x", "y"
    diff = "--- a/f\n+++ b/f\n"
    for at in (12, 27):
        diff += f"@@ -{at},3 +{at},3 @@\n {old[at - 1]}\n-{old[at]}\n+{new[at]}\n {old[at + 1]}\n"
    before, after = ("\n".join(["top"] * 3 + lines) + "\n" for lines in (old, new))
    assert changed(tmp_path, diff, before, "f") == after


def test_line_ends_stay_those_of_the_file(tmp_path):
    (tmp_path / "f").write_bytes(b"1\r\n2\r\n3\r\n")
    apply("--- a/f\n+++ b/f\n@@ -1,3 +1,4 @@\n 1\n-2\n+two\n+more\n 3\n", tmp_path)
    assert (tmp_path / "f").read_bytes() == b"1\r\ntwo\r\nmore\r\n3\r\n"


def test_a_new_a_removed_and_a_renamed_file_are_told(tmp_path):
    write_tree(tmp_path, {"gone": "1\n", "from": "2\n"})
    summary = apply(
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
        "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n"
        "diff --git a/from b/to\nsimilarity index 100%\nrename from from\nrename to to\n"
        "diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n",
        tmp_path,
    )
    assert summary.splitlines()[1:] == ["A new", "A empty", "M to", "D gone"]
    assert read_tree(tmp_path) == {"new": "x", "empty": "", "to": "2\n"}


@pytest.mark.parametrize(
    ("diff", "why"),
    [
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", "line 6 .*run chmod"),
        ("diff --git a/f b/f\nnew file mode 100755\n--- /dev/null\n+++ b/f\n", "mode 100755"),
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n", "mode 120000"),
        ("diff --git a/f b/g\ncopy from f\ncopy to g\n", "not copied"),
        ("diff --git a/f b/f\nindex 1..2\nGIT binary patch\nliteral 1\n", "only text"),
        ("diff --git a/f b/f\nBinary files a/f and b/f differ\n", "only text"),
        ("--- a/f\n+++ b/f\n", "nothing is said of what to change in f"),
        ("--- a/f\n+++ b/f\n@@ lines @@\n-1\n", "line 7 .*begins with"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n", "the hunk has no lines"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-9\n+2\n", "f"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n+2\n\n+3\n@@", "line 11 .*belongs to no hunk"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-1\n", "both files are /dev/null"),
        ("--- /dev/null\n+++ b/n\n@@ -1 +1,2 @@\n 1\n+2\n", "n is new, and yet lines of it"),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-9\n", "does not hold what the patch says"),
        ("--- a/no\n+++ b/no\n@@ -1 +1 @@\n-1\n+2\n", "there is no such file"),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-1\n\\ No newline\n+2\n", "f"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(tmp_path, diff, why):
    before = {"f": "1\nlast\n"}
    write_tree(tmp_path, before)
    first = "--- /dev/null\n+++ b/z\n@@ -0,0 +1 @@\n+z\n"
    with pytest.raises(RespondToModel, match=f"(?s){why}"):
        apply(first + diff, tmp_path)
    assert read_tree(tmp_path) == before


def test_our_own_format_stays_what_it_is(tmp_path):
    patch = "*** Begin Patch\n*** Add File: f\n+--- a/x\n++++ b/x\n+@@ -1 +1 @@\n*** End Patch\n"
    apply(patch, tmp_path)
    assert read_tree(tmp_path) == {"f": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n"}


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "--- a/f",
                "+++ b/f",
                "@@ -1 +1 @@",
                "-1",
                "+2",
                " 3",
                "\\ No",
                "",
                "diff --git a/f b/f",
                "rename from x",
                "new file mode 100644",
                "-- ",
                '+++ "b/\\303"',
                "index 1",
            ]
        ),
        max_size=12,
    )
)
def test_no_text_makes_it_fail_otherwise(lines):
    with contextlib.suppress(RespondToModel):
        read_patch("\n".join(lines))


@pytest.mark.parametrize(("old", "new"), [("a\n", "b\n"), (None, "a\n"), ("a\n", None)])
def test_our_diffs_of_a_file_outside_name_it_as_it_is_and_apply_to_it(tmp_path, old, new):
    outside, workspace = tmp_path / "elsewhere" / "f", tmp_path / "workspace"
    outside.parent.mkdir()
    workspace.mkdir()
    contents = [None if text is None else text.encode() for text in (old, new)]
    states = [
        ABSENT if data is None else PathState("file", 0o644, digest_of(data), len(data))
        for data in contents
    ]
    turns = file_diff(str(outside), *states, *contents).text
    if old is not None:
        outside.write_text(old)
    change = [*(["-a"] if old else []), *([f"+{new[0]}"] if new else [])]
    head = {(True, True): "Update", (False, True): "Add", (True, False): "Delete"}
    lines = ["@@", *change] if old and new else change if new else []
    ours = [f"*** {head[bool(old), bool(new)]} File: {outside}", *lines]
    text = "\n".join(["*** Begin Patch", *ours, "*** End Patch"])
    calls = plan_patch(read_patch(text), workspace.joinpath).diff
    for diff in (turns, calls):
        assert f"//{outside}" not in diff and "b//" not in diff and "a//" not in diff
        assert str(outside) in diff
        apply(diff, workspace)
        assert (outside.read_text() if new else outside.exists()) == (new or False)
        outside.unlink(missing_ok=True)
        if old is not None:
            outside.write_text(old)
