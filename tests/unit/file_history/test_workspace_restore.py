"""How an undo reaches the disk: all of it or nothing, and whatever kills it can be finished."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magics.file_history import restore as workspace_restore
from agent_magics.file_history.journal import ChangeJournal
from agent_magics.file_history.workspace import WorkspaceMemory
from agent_magics.protocol.errors import FatalError
from tests.support.files import crashing_undo


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
