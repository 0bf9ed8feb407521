"""What opens is where its path says; a link in the way is never followed."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from agent_magics.files.beneath import (
    PathChanged,
    back_up,
    closing_descriptor,
    folder_of,
    open_file,
    open_folder,
    real_path,
    take_over,
)
from tests.support import forks
from tests.support.descriptors import none_left
from tests.support.users import ME, USER, become


def content(descriptor):
    with open(descriptor, "rb") as file:
        return file.read()


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_bytes(b"inside")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/b/name").symlink_to("file")
    return tmp_path


def test_a_plain_path_opens(tree):
    assert content(open_file(f"{tree}/a/b/file")) == b"inside"
    with folder_of(f"{tree}/a/b/new") as (folder, name):
        assert name == "new" and sorted(os.listdir(f"/proc/self/fd/{folder}")) == ["file", "name"]


@pytest.mark.parametrize("path", ["link/b/file", "a/b/name"])
def test_a_link_anywhere_in_it_is_refused(path, tree):
    with open(tree / path, "rb") as file:  # a plain open follows it
        assert file.read() == b"inside"
    with pytest.raises(PathChanged):
        open_file(f"{tree}/{path}")


def test_what_is_not_there_is_no_change(tree):
    for path, error in (("none/x", FileNotFoundError), ("a/b/file/x", NotADirectoryError)):
        with pytest.raises(error) as caught:
            open_file(f"{tree}/{path}")
        assert not isinstance(caught.value, PathChanged)


def test_a_relative_walk_starts_in_an_opened_folder(tree):
    start = open_folder(f"{tree}/a")
    try:
        folder = open_folder("b", start)
        assert content(open_file("file", folder)) == b"inside"
        os.close(folder)
        with pytest.raises(PathChanged):
            open_folder("b/../..", start)
    finally:
        os.close(start)


def test_an_opened_folder_stays_the_same_whatever_takes_its_place(tree):
    with folder_of(f"{tree}/a/b/file") as (folder, name):
        (tree / "a/b").rename(tree / "moved")
        (tree / "a/b").symlink_to("/")
        assert content(open_file(name, folder)) == b"inside"


def test_a_fifo_does_not_block(tree):
    os.mkfifo(tree / "fifo")
    os.close(open_file(f"{tree}/fifo"))


def test_no_descriptor_is_lost(tree):
    with none_left():
        for path in ("a/b/file", "link/b/file", "none/x", "a/b/file/x"):
            with suppress(OSError):
                os.close(open_file(f"{tree}/{path}"))


@pytest.mark.needs("machine Linux")
def test_an_attribute_that_finds_no_room_takes_no_other_away(tree):
    for name, value in (("user.big", b"x" * 2500), ("user.small", b"x" * 200)):
        os.setxattr(tree / "a/b/file", name, value)
    with closing_descriptor(os.open(tree / "new", os.O_WRONLY | os.O_CREAT)) as new:
        os.setxattr(new, "user.full", b"x" * 2500)  # ext4 has one block for all
        with closing_descriptor(open_folder(f"{tree}/a/b")) as folder:
            take_over(new, "file", folder)
        assert os.getxattr(new, "user.small") == b"x" * 200


def test_a_folder_that_may_be_entered_but_not_listed():
    """As most homes are for others; run as a user without rights."""

    def look() -> bytes:
        become(USER)
        with pytest.raises(PermissionError):
            os.listdir(top)
        return content(open_file(f"{top}/file"))

    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        Path(top, "file").write_text("x", encoding="utf-8")
        os.chmod(top, 0o711 if USER != ME else 0o311)
        assert forks.call(look) == b"x"
        os.chmod(top, 0o711)


# -- where a path leads ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        *(".", "a/b/file", "a/b/none", "none/x", "a/../a/b", "a/b/file/..", "a/b/file/x", ""),
        *("link", "link/b/name", "link/..", "link/b/none", "a/b/name", "loop", "loop/x", "gone"),
        *(
            "out/b",
            "a/b/pipe",
            "x (deleted)",
            "closed/inside",
            "a" * 300,
            "/",
            "//etc",
            "/proc/self",
        ),
        *("/proc/self/cwd", "/proc/self/exe", "/dev/fd/{pipe}", "/dev/fd/{removed}", "/dev/null"),
    ],
)
def test_a_path_leads_where_realpath_says(path, tree, monkeypatch):
    (tree / "loop").symlink_to("loop")
    (tree / "gone").symlink_to("a/none")
    (tree / "out").symlink_to(tree / "link")
    os.mkfifo(tree / "a/b/pipe")
    (tree / "x (deleted)").write_text("")
    (tree / "closed/inside").mkdir(parents=True)
    (tree / "removed").write_text("")
    monkeypatch.chdir(tree)
    reading, writing = os.pipe()
    removed = os.open(tree / "removed", os.O_RDONLY)
    (tree / "removed").unlink()
    (tree / "closed").chmod(0)
    try:
        path = path.format(pipe=reading, removed=removed)
        assert real_path(path) == os.path.realpath(path)
        assert real_path(Path(path)) == os.path.realpath(Path(path))
    finally:
        (tree / "closed").chmod(0o700)
        for descriptor in (reading, writing, removed):
            os.close(descriptor)


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_backup_is_the_file_as_it_was(tmp_path, monkeypatch, kind, has_links):
    """A file system without hard links gets a copy, and nothing of it where that fails."""
    name = tmp_path / "name"
    name.symlink_to("gone") if kind == "link" else name.write_bytes(b"x" * 100_000)
    name.chmod(0o640) if kind == "file" else None
    before = name.lstat()
    if not has_links:
        monkeypatch.setattr(os, "link", lambda *_, **__: os.stat("/nowhere"))
    with closing_descriptor(os.open(tmp_path, os.O_RDONLY)) as folder:
        back_up("name", "backup", folder)
        after = (tmp_path / "backup").lstat()
        assert (after.st_mode, after.st_size) == (before.st_mode, before.st_size)
        if kind == "file":
            assert after.st_mtime_ns == before.st_mtime_ns
            monkeypatch.setattr(os, "link", lambda *_, **__: os.stat("/nowhere"))
            monkeypatch.setattr(shutil, "copyfileobj", lambda *_: os.stat("/nowhere"))
            with pytest.raises(FileNotFoundError):
                back_up("name", "second", folder)
            assert set(os.listdir(tmp_path)) == {"name", "backup"}
