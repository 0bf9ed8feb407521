import os

import pytest

from agent_magics.backends import patch_files
from agent_magics.backends.patch import parse_patch, plan_patch
from agent_magics.protocol.errors import RespondToModel


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
