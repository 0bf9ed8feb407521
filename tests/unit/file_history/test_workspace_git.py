"""A repository stands for copies of its files, and nothing of it is run or written."""

import os
import resource
import subprocess
import tempfile
import zlib
from pathlib import Path

import pytest

from agent_magics.file_history import git_objects as workspace_git
from agent_magics.file_history import scan as workspace_scan
from agent_magics.file_history.git_objects import read_git
from agent_magics.file_history.workspace import WorkspaceMemory

pytestmark = pytest.mark.needs("program git")
_NAMES = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def git(root: Path, *words: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *_NAMES, *words], cwd=root, env=env, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository whose files are older than its index, so that git's word for them is taken."""
    root = tmp_path / "root"
    (root / "d").mkdir(parents=True)
    for name in ("a", "b", "d/c", "ü"):
        (root / name).write_text(f"{name}\n" * 3)
        os.utime(root / name, ns=(10**18, 10**18))
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


def _change(root: Path, change) -> dict:
    memory = WorkspaceMemory(str(root))
    memory.begin()
    change()
    return {
        os.path.relpath(each.path, root): memory.content(each.before.digest)
        for each in memory.end().changes
    }


@pytest.mark.parametrize("packed", [False, True], ids=["loose", "packed"])
def test_what_was_there_comes_out_of_gits_objects(root, packed, monkeypatch):
    if packed:
        git(root, "gc", "-q")
    # The files are so new that they would be read again to be sure.
    monkeypatch.setattr(workspace_scan, "_CLOCK_TICK", 0)
    read: list[str] = []
    monkeypatch.setattr(
        WorkspaceMemory, "_read", lambda self, folder, names, judge: read.extend(names)
    )
    assert _change(root, lambda: None) == {}
    assert read == []  # all of it is as git knows it, so nothing was copied
    monkeypatch.undo()
    (root / "b").write_text("edited by the person")

    def change() -> None:
        (root / "a").write_text("new")
        (root / "b").write_text("new")
        (root / "d/c").unlink()
        (root / "ü").chmod(0o700)

    was = {"a": b"a\n" * 3, "b": b"edited by the person", "d/c": b"d/c\n" * 3}
    assert _change(root, change) == {**was, "ü": "ü\n".encode() * 3}


def test_a_workspace_inside_a_repository(root):
    assert _change(root / "d", lambda: (root / "d/c").write_text("new")) == {"c": b"d/c\n" * 3}


def test_a_linked_worktree(root, tmp_path):
    git(root, "worktree", "add", "-q", str(tmp_path / "tree"))
    tree = tmp_path / "tree"
    assert read_git(str(tree)) is not None
    assert _change(tree, lambda: (tree / "a").write_text("new")) == {"a": b"a\n" * 3}


def test_nothing_of_the_repository_runs_and_its_index_stays(root, tmp_path):
    ran = tmp_path / "ran"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho ran >> {ran}\ncat\n")
    script.chmod(0o755)
    for name in (
        "core.fsmonitor",
        "filter.x.clean",
        "filter.x.smudge",
        "core.alternateRefsCommand",
    ):
        git(root, "config", name, str(script))
    hook = root / ".git/hooks/post-index-change"
    hook.write_bytes(script.read_bytes())
    hook.chmod(0o755)
    (root / ".git/info/attributes").write_text("* diff=x\n")
    index = (root / ".git/index").read_bytes(), (root / ".git/index").stat().st_mtime_ns
    assert _change(root, lambda: (root / "a").write_text("new")) == {"a": b"a\n" * 3}
    assert not ran.exists()
    assert index == ((root / ".git/index").read_bytes(), (root / ".git/index").stat().st_mtime_ns)


@pytest.mark.parametrize(
    "attributes",
    ["*.txt filter=lfs\n", "a ident\n", "b working-tree-encoding=UTF-16\n", "* text=auto\n"],
)
def test_where_files_stand_otherwise_than_git_stores_them_copies_are_made(root, attributes):
    (root / ".gitattributes").write_text(attributes)
    assert read_git(str(root)) is None
    assert _change(root, lambda: (root / "a").write_text("new")) == {"a": b"a\n" * 3}


def test_line_ends_that_git_converts_come_back_as_they_were(root):
    (root / ".gitattributes").write_text("* text=auto eol=crlf\n")
    git(root, "add", "--renormalize", ".")
    (root / "a").unlink()
    git(root, "checkout", "--", "a")
    was = (root / "a").read_bytes()
    assert b"\r\n" in was
    assert read_git(str(root)) is None
    os.utime(root / "a", ns=(10**18, 10**18))
    git(root, "update-index", "--refresh")
    assert _change(root, lambda: (root / "a").write_text("new"))["a"] == was


def test_where_git_converts_all_line_ends_copies_are_made(root):
    git(root, "config", "core.autocrlf", "false")
    assert read_git(str(root)) is not None
    git(root, "config", "core.autocrlf", "input")
    assert read_git(str(root)) is None


def test_an_index_of_another_kind_is_not_trusted(root):
    git(root, "update-index", "--index-version", "4")
    assert read_git(str(root)) is None
    assert _change(root, lambda: (root / "a").write_text("new")) == {"a": b"a\n" * 3}
    (root / ".git/index").write_bytes(b"DIRC broken")
    assert read_git(str(root)) is None


def test_a_git_in_the_workspace_is_not_started(root, monkeypatch):
    (root / "git").write_text("#!/bin/sh\n")
    (root / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    assert workspace_git._find_git(str(root)) != str(root / "git")
    monkeypatch.setenv("PATH", str(root))
    assert read_git(str(root)) is None


def test_tracked_files_are_watched_whatever_is_ignored(root):
    (root / ".gitignore").write_text("a\nd/\n")

    def change() -> None:
        (root / "a").write_text("new")
        (root / "d/c").write_text("new")
        (root / "d/new").write_text("new")

    assert set(_change(root, change)) == {"a", "d/c"}


def test_a_commit_by_a_command_is_no_change_of_files(root):
    (root / "a").write_text("new")
    assert _change(root, lambda: git(root, "commit", "-qam", "second")) == {}


def _bomb(path: Path) -> None:
    path.unlink()
    packer = zlib.compressobj(1)
    with path.open("wb") as file:
        file.write(packer.compress(b"blob %d\0" % (1 << 30)))
        for _ in range(1 << 10):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.flush())


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.soak
@pytest.mark.parametrize("spoil", [_bomb, _pipe, Path.unlink])
def test_a_spoilt_object_costs_neither_memory_nor_time(root, spoil, monkeypatch):
    monkeypatch.setattr(workspace_git, "_CAT_SECONDS", 2.0)
    monkeypatch.setattr(workspace_scan, "_CLOCK_TICK", 0)
    hashed = subprocess.run(
        ["git", "rev-parse", ":a"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def change() -> None:
        spoil(root / ".git/objects" / hashed[:2] / hashed[2:])
        (root / "a").write_text("new")

    assert _change(root, change)["a"] is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


def test_a_change_is_seen_though_no_disk_has_room_for_what_asks_git(root, monkeypatch, tmp_path):
    monkeypatch.setattr(workspace_scan, "_CLOCK_TICK", 0)
    memory = WorkspaceMemory(str(root))
    memory.begin()
    (root / "a").write_text("new")
    with monkeypatch.context() as patched:
        patched.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
        [change] = memory.end().changes
    assert change.path == f"{root}/a"
    assert change.before.why == "git could not give its content back"
