"""What is ignored is what git ignores."""

import os
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.files.folders import ALL_RIGHTS, FolderWalk, list_folder
from agent_magics.files.ignore_rules import parse_ignore_file

NAMES = ["a", "b", "ab", "a b", "é", "abc", "a.c", "-", "]", "A", "[", "a*", "\\", "!a", "#a"]
PIECES = [
    *("a", "b", "c", "*", "**/", "/**", "/", "?", "[ab]", "[!a]", "[^b-z]", "[a-", "]", "["),
    *("\\a", "\\*", "[[:alpha:]]", "[[:foo:]]", "[[:", "é", " ", "\\ ", "-", "!", "#", ".", "f"),
    *("[]a]", "[\\]]", "[a/b]", "\t", "ab", "[]", "[!]", "\r"),
]
# Two stars that are not a folder's whole name mean what one means, says gitignore(5); in git itself
# a folder `a` fits `a**/` too.
STRAY_STARS = re.compile(r"(?<!^)(?<!^!)(?<!/)\*\*|\*\*(?!/|$)")
LINES = (
    st.lists(st.sampled_from(PIECES), max_size=6)
    .map("".join)
    .filter(lambda line: not STRAY_STARS.search(line))
)
needs_git = pytest.mark.needs("program git")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Folders and files of odd names, in a repository without a commit."""
    root = tmp_path_factory.mktemp("ignored")
    git(root, "init", "-q")
    for outer in NAMES:
        (root / outer).mkdir()
        (root / outer / "f").touch()
        for inner in NAMES[:8]:
            (root / outer / inner).mkdir()
            (root / outer / inner / "ab").touch()
    return root


def git(root, *arguments):
    settings_of_nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", f"core.excludesFile={os.devnull}", "-C", str(root), *arguments]
    environment = {**os.environ, **settings_of_nobody}
    return subprocess.run(command, env=environment, capture_output=True, check=True).stdout


def shown_by_git(root):
    listed = git(root, "ls-files", "-z", "-o", "--exclude-standard")
    return {os.fsdecode(name) for name in listed.split(b"\0") if name}


def shown_by_us(root):
    walk = FolderWalk(str(root), None, True, ALL_RIGHTS)
    return {name for name, item in walk.entries() if item.kind == "file"}


@needs_git
@settings(max_examples=100, deadline=None)
@given(above=st.lists(LINES, max_size=3), below=st.lists(LINES, max_size=2))
def test_git_shows_the_same_files(above, below, repository):
    (repository / ".gitignore").write_bytes("\n".join(above).encode() + b"\n")
    (repository / "a" / ".gitignore").write_bytes("\n".join(below).encode())
    assert shown_by_us(repository) == shown_by_git(repository)


@needs_git
def test_usual_ignore_files(tmp_path):
    git(tmp_path, "init", "-q")
    for name in (
        *("build/x", "src/build/x", "docs/_build/x", "keep/data.csv", "data.csv", "a.pyc"),
        *(
            "src/a.pyc",
            "log/debug.log",
            "log/keep.log",
            "foo/bar/baz",
            "x/foo/bar",
            "node_modules/m",
        ),
        *(" led", "trail ", "star*", "sub/own", "sub/other"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / ".gitignore").write_bytes(
        b"\xef\xbb\xbf# comment\r\n\r\n/build\r\n*.py[co]\r\n!keep\n*.csv\n!keep/data.csv\n"
        b"log/*\n!log/keep.log\nfoo/**/baz\nnode_modules/\ndocs/_build/\ntrail\\ \nstar\\*\n"
    )
    (tmp_path / "sub" / ".gitignore").write_text("/own\n!*.pyc\n", encoding="utf-8")
    (tmp_path / ".git" / "info" / "exclude").write_text("x/foo\n", encoding="utf-8")
    assert shown_by_us(tmp_path) == shown_by_git(tmp_path)
    assert "src/build/x" in shown_by_us(tmp_path)
    assert "x/foo/bar" not in shown_by_us(tmp_path)


def test_what_is_named_is_looked_into(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/**\n*.log\n", encoding="utf-8")
    for name in ("build/deep/a.txt", "src/a.txt", "src/a.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    whole = list_folder(tmp_path, ".", depth=None)
    assert [entry.path for entry in whole.entries] == ["build", "src", "src/a.txt"]
    assert (whole.ignored, whole.ignored_names) == (2, ("build/deep/", "src/a.log"))
    build = list_folder(tmp_path / "build" / "deep", "build/deep")
    assert [entry.path for entry in build.entries] == ["a.txt"]
    # The rules above hold below a folder that they do not ignore.
    assert list_folder(tmp_path / "src", "src").ignored_names == ("a.log",)


def test_an_ignore_file_that_is_none_is_left_alone(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "rules").write_text("a\n", encoding="utf-8")
    (tmp_path / ".gitignore").symlink_to("rules")
    assert list_folder(tmp_path, ".").ignored == 0
    (tmp_path / ".gitignore").unlink()
    os.mkfifo(tmp_path / ".gitignore")
    assert list_folder(tmp_path, ".").ignored == 0


def test_no_pattern_takes_long():
    stars = "*a" * 60 + "b\n" + "**/a/" * 60 + "b\n" + "[a-z]*" * 40 + "!\n"
    file = parse_ignore_file(stars.encode())
    assert file.verdict(("a",) * 200, "a" * 250, is_folder=False) is None
