"""How a patch reaches the disk: all of it or nothing, whatever happens meanwhile."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magics.patch import files as patch_files
from agent_magics.patch.grammar import parse_patch
from agent_magics.patch.plan import plan_patch
from agent_magics.protocol.errors import RespondToModel
from tests.support.descriptors import none_left
from tests.support.files import crashing_patch


def test_a_folder_that_goes_away_with_its_file_is_not_made_anew(tmp_path, monkeypatch):
    """It went after the last look at the file, before the new content was staged."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_text("old\n", encoding="utf-8")
    patch = "*** Begin Patch\n*** Update File: d/f\n@@\n-old\n+new\n*** End Patch\n"
    plan = plan_patch(parse_patch(patch), tmp_path.joinpath)
    check = patch_files._check_unchanged

    def check_and_move(write, look):
        check(write, look)
        os.rename(tmp_path / "d", tmp_path / "aside")

    monkeypatch.setattr(patch_files, "_check_unchanged", check_and_move)
    with pytest.raises(RespondToModel, match=r"d/f cannot be written .*nothing was changed"):
        plan.apply()
    assert [path.name for path in tmp_path.iterdir()] == ["aside"]
    assert (tmp_path / "aside/f").read_text(encoding="utf-8") == "old\n"


def _adding(folder):
    patch = "*** Begin Patch\n*** Add File: made/deep/f\n+new\n*** End Patch\n"
    return plan_patch(parse_patch(patch), folder.joinpath)


def test_no_folder_stays_that_was_made_where_no_descriptor_was_left(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", refuse)
        with pytest.raises(RespondToModel, match=r"made/deep/f .*; nothing was changed"):
            _adding(tmp_path).apply()
    assert os.listdir(tmp_path) == []


def test_no_folder_stays_where_an_interrupt_comes_just_after_it_was_made(tmp_path):
    mkdir = os.mkdir
    with pytest.MonkeyPatch.context() as patched:

        def interrupt(*args, **kwargs):
            patched.undo()
            mkdir(*args, **kwargs)
            raise KeyboardInterrupt

        patched.setattr(os, "mkdir", interrupt)
        with pytest.raises(KeyboardInterrupt):
            _adding(tmp_path).apply()
    assert os.listdir(tmp_path) == []
    _adding(tmp_path).apply()
    assert (tmp_path / "made/deep/f").read_text(encoding="utf-8") == "new\n"


def test_an_interrupt_once_all_is_written_leaves_no_old_content_beside_it(tmp_path):
    patch = "*** Begin Patch\n"
    for name in ("a", "b"):
        (tmp_path / name).write_text("old\n", encoding="utf-8")
        patch += f"*** Update File: {name}\n@@\n-old\n+new\n"
    plan = plan_patch(parse_patch(f"{patch}*** End Patch\n"), tmp_path.joinpath)
    with none_left(), pytest.MonkeyPatch.context() as patched:

        def interrupt(*args, **kwargs):
            patched.undo()
            raise KeyboardInterrupt

        patched.setattr(os, "unlink", interrupt)
        with pytest.raises(KeyboardInterrupt):
            plan.apply()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert {(tmp_path / name).read_text(encoding="utf-8") for name in ("a", "b")} == {"new\n"}


def test_a_folder_that_someone_else_makes_meanwhile_stays(tmp_path):
    mkdir = os.mkdir
    with pytest.MonkeyPatch.context() as patched:

        def make_before(*args, **kwargs):
            mkdir(*args, **kwargs)
            mkdir(*args, **kwargs)

        patched.setattr(os, "mkdir", make_before)
        with pytest.raises(RespondToModel, match="nothing was changed"):
            _adding(tmp_path).apply()
    assert os.listdir(tmp_path) == ["made"]


@pytest.mark.soak
def test_a_crash_at_any_step_leaves_each_file_old_or_new(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, crashing_patch.__file__, str(tmp_path)],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=True,
    )
    crashes = [json.loads(line) for line in done.stdout.splitlines()]
    after = {
        "changed.txt": "new\nend\n",
        "made/deep/added.txt": "added\n",
        "made/there.txt": "new\n",
    }
    assert crashes[-1]["ended"] and crashes[-1]["files"] == after
    states = {
        name: {crashing_patch.BEFORE.get(name), after.get(name)}
        for name in {**crashing_patch.BEFORE, **after}
    }
    for crash in crashes:
        files = crash["files"]
        for name, allowed in states.items():
            assert files.get(name) in allowed, (crash["step"], name)
        # What is left beside them can be told from the person's own files.
        others = [name for name in files if name not in states]
        assert all(Path(name).name.startswith(".agent-patch-") for name in others), others
    # Killed at the very first step nothing has happened, and there are many steps.
    assert crashes[0]["files"] == crashing_patch.BEFORE
    assert len(crashes) > 15


def test_the_other_name_of_a_file_keeps_the_old_content(tmp_path):
    """So a hard link to a file elsewhere is no way to change that file."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    inside.mkdir()
    outside.write_text("old\n", encoding="utf-8")
    os.link(outside, inside / "f")
    patch = "*** Begin Patch\n*** Update File: f\n@@\n-old\n+new\n*** End Patch\n"
    plan_patch(parse_patch(patch), inside.joinpath).apply()
    assert (inside / "f").read_text(encoding="utf-8") == "new\n"
    assert outside.read_text(encoding="utf-8") == "old\n"
