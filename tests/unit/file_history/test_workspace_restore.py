"""How an undo reaches the disk: all of it or nothing, and whatever kills it can be finished."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magics.file_history import restore as workspace_restore
from agent_magics.file_history import workspace
from agent_magics.file_history.journal import ChangeJournal
from agent_magics.file_history.workspace import WorkspaceMemory
from agent_magics.protocol.errors import FatalError
from tests.support.files import crashing_undo
from tests.support.users import call_as_user


def _changed(tmp_path: Path) -> tuple[Path, ChangeJournal, dict[str, str], dict[str, str]]:
    root = tmp_path / "root"
    root.mkdir()
    crashing_undo.make_before(root)
    before = crashing_undo.tree_of(root)
    memory = WorkspaceMemory(str(root))
    memory.begin()
    crashing_undo.change(root)
    journal = ChangeJournal(str(tmp_path / "journal"))
    journal.add("t", "turn", memory.end().changes, memory.content)
    return root, journal, before, crashing_undo.tree_of(root)


@pytest.mark.soak
def test_a_crash_at_any_step_leaves_each_file_old_or_new_and_can_be_finished(tmp_path):
    done = subprocess.run(
        [sys.executable, crashing_undo.__file__, str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    crashes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(crashes) > 30 and crashes[-1]["ended"]
    for crash in crashes:
        before, after, left = crash["before"], crash["after"], crash["crashed"]
        for name in left.keys() - before.keys() - after.keys():
            assert Path(name).name.startswith(".agent-undo-"), name
        # What changes its kind is nothing for a moment.
        for name in (before.keys() | after.keys()) - {"file"}:
            assert left.get(name) in (before.get(name), after.get(name)), (crash["step"], name)
        assert crash["finished"] == before, crash["step"]


@pytest.mark.parametrize("step", ["back_up", "set_mode", "make", "make_folder"])
@pytest.mark.parametrize("number", [1, 2])
def test_where_the_disk_refuses_everything_is_as_it_was(tmp_path, monkeypatch, step, number):
    root, journal, before, after = _changed(tmp_path)
    real, calls = getattr(workspace_restore, step), []

    def refuse(*args):
        calls.append(args)
        if len(calls) == number:
            raise OSError(28, "No space left on device")
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(workspace_restore, step, refuse)
        with pytest.raises(FatalError, match=r"No space left on device.*nothing was changed"):
            journal.undo()
    assert crashing_undo.tree_of(root) == after
    assert not journal.undo().obstacles
    assert crashing_undo.tree_of(root) == before


def test_a_file_that_changes_while_it_is_put_back_stays(tmp_path, monkeypatch):
    root, journal, _, _ = _changed(tmp_path)
    real = workspace_restore.make

    def make_and_edit(*args):
        real(*args)
        (root / "changed").write_text("mine\n")

    with monkeypatch.context() as patched:
        patched.setattr(workspace_restore, "make", make_and_edit)
        with pytest.raises(FatalError, match="it changed while it was being put back"):
            journal.undo()
    assert (root / "changed").read_text() == "mine\n"
    assert "you changed it since" in [each.reason for each in journal.undo().obstacles]


@pytest.mark.parametrize("step", ["rename", "rmdir", "mkdir", "replace"])
def test_an_interrupt_just_after_a_step_leaves_everything_as_it_was(tmp_path, step):
    root, journal, before, after = _changed(tmp_path)
    real = getattr(os, step)
    with pytest.MonkeyPatch.context() as patched:

        def interrupt(*args, **kwargs):
            patched.undo()  # what puts things back is not interrupted
            real(*args, **kwargs)
            raise KeyboardInterrupt

        patched.setattr(os, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            journal.undo()
    assert crashing_undo.tree_of(root) == after
    assert not journal.undo().obstacles
    assert crashing_undo.tree_of(root) == before


def test_a_content_that_cannot_be_put_back_again_is_kept_and_named(tmp_path, monkeypatch):
    root, journal, _, _ = _changed(tmp_path)

    def refuse(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(workspace_restore, "make_folder", refuse)
        patched.setattr(workspace_restore, "rename", refuse)
        with pytest.raises(FatalError, match="not all of it could be put as it was") as failed:
            journal.undo()
    named = re.search(r"made/deep/c \(its content is in ([^)]+)\)", str(failed.value))
    assert named is not None
    assert Path(named[1]).read_text(encoding="utf-8") == "c\n"
    assert not (root / "made").exists()


@pytest.mark.parametrize("how", ["content", "mode", "removal"])
def test_a_file_of_two_names_is_put_back_under_both(tmp_path, how):
    (tmp_path / "root").mkdir()
    one, other = tmp_path / "root/one", tmp_path / "root/other"
    one.write_text("mine\n", encoding="utf-8")
    one.chmod(0o644)
    os.link(one, other)
    memory = WorkspaceMemory(str(tmp_path / "root"))
    memory.begin()
    if how == "content":
        one.write_text("changed\n", encoding="utf-8")
    elif how == "mode":
        one.chmod(0o600)
    else:
        one.unlink()
        other.unlink()
    journal = ChangeJournal(str(tmp_path / "journal"))
    journal.add("t", "turn", memory.end().changes, memory.content)
    assert not journal.undo().obstacles
    for file in (one, other):
        assert file.read_text() == "mine\n" and file.stat().st_mode & 0o777 == 0o644
    assert sorted(os.listdir(tmp_path / "root")) == ["one", "other"]
    assert not journal.redo().obstacles
    assert [file.exists() for file in (one, other)] == [how != "removal"] * 2


# -- folders that may not be looked into ---------------------------------------------------------
# Root may look into any, so an ordinary user does all of it.

CLOSED = pytest.mark.parametrize("mode", [0o000, 0o311, 0o666])


def _in_a_workspace(act):
    """Call ``act(data, memory, journal)`` as an ordinary user, with a folder of two files."""

    def run(top):
        data = Path(top, "root/data")
        (data / "deep").mkdir(parents=True)
        for name in ("one", "deep/two"):
            (data / name).write_text("mine\n", encoding="utf-8")
        act(data, WorkspaceMemory(str(data.parent)), ChangeJournal(f"{top}/journal"))
        data.chmod(0o755)
        assert (data / "one").read_text() == (data / "deep/two").read_text() == "mine\n"
        assert sorted(path.name for path in data.parent.rglob("*")) == [
            "data",
            "deep",
            "one",
            "two",
        ]

    call_as_user(run)


@CLOSED
def test_what_stood_in_a_folder_that_is_opened_was_not_made(mode):
    def act(data, memory, journal):
        data.chmod(mode)
        memory.begin()
        assert memory.left_out == ["data/"]
        data.chmod(0o755)
        (data.parent / "new").touch()
        journal.add("t", "turn", memory.end().changes, memory.content)
        assert memory.left_out == []
        undone = journal.undo()
        assert not undone.obstacles and undone.paths == (
            f"{data.parent}/data",
            f"{data.parent}/new",
        )
        assert data.stat().st_mode & 0o777 == mode

    _in_a_workspace(act)


@CLOSED
def test_what_stands_in_a_folder_that_is_closed_was_not_removed(mode):
    def act(data, memory, journal):
        memory.begin()
        data.chmod(mode)
        journal.add("t", "turn", memory.end().changes, memory.content)
        assert journal.undo().paths == (str(data),)

    _in_a_workspace(act)


@CLOSED
def test_what_is_changed_in_a_folder_that_was_closed_meanwhile_is_put_back(mode):
    def act(data, memory, journal):
        memory.begin()
        data.chmod(mode)
        assert [change.path for change in memory.end().changes] == [str(data)]
        memory.begin()
        data.chmod(0o755)
        (data / "one").write_text("changed\n", encoding="utf-8")
        journal.add("t", "turn", memory.end().changes, memory.content)
        assert not journal.undo().obstacles

    _in_a_workspace(act)


def refuse(*_):
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o555), (0o555, 0o755), (0o555, 0o577)])
def test_what_is_changed_in_a_folder_that_may_not_be_written_is_put_back(before, after):
    def act(data, memory, journal):
        (kind := data.parent / "kind").touch()
        kind.chmod(0o640)
        data.chmod(before)
        (data / "deep").chmod(before)
        memory.begin()
        kind.unlink()
        kind.mkdir(after)
        for folder in (data, data / "deep"):
            folder.chmod(0o755)
        (data / "one").write_text("changed\n", encoding="utf-8")
        (data / "deep/two").unlink()
        (data / "deep/new").mkdir()
        (data / "deep/new/file").touch()
        for folder in (data / "deep/new", data / "deep", data):
            folder.chmod(after)
        journal.add("t", "turn", memory.end().changes, memory.content)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(workspace_restore.Restore, "_settle_mode", refuse)
            with pytest.raises(FatalError, match="nothing was changed"):
                journal.undo()
        modes = [each.stat().st_mode & 0o777 for each in (data, data / "deep", data / "deep/new")]
        assert modes == [after] * 3
        assert (data / "one").read_text() == "changed\n"
        assert not journal.undo().obstacles
        assert [each.stat().st_mode & 0o777 for each in (data, data / "deep")] == [before] * 2
        assert kind.is_file() and kind.stat().st_mode & 0o777 == 0o640
        kind.unlink()

    _in_a_workspace(act)


def test_a_file_that_could_not_be_read_at_first_is_not_taken_for_a_new_one(tmp_path, monkeypatch):
    (tmp_path / "root").mkdir()
    file = tmp_path / "root/file"
    file.write_text("mine\n", encoding="utf-8")
    memory = WorkspaceMemory(str(tmp_path / "root"))
    with monkeypatch.context() as patched:
        patched.setattr(workspace, "open_folder", refuse)
        memory.begin()
    file.write_text("changed\n", encoding="utf-8")
    journal = ChangeJournal(str(tmp_path / "journal"))
    journal.add("t", "turn", memory.end().changes, memory.content)
    [obstacle] = journal.undo().obstacles
    assert obstacle.reason == "what it was is not kept (it could not be read)"
    assert file.read_text() == "changed\n"
