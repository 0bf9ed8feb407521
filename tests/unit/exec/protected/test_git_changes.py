"""Whatever way a setting is written or added, it is known that git runs a program because of it."""

import stat

import pytest

from agent_magics.exec.protected.git_changes import makes_git_run, what_git_would_run
from agent_magics.exec.protected.snapshot import SnapshotEntry


def entry(text: str) -> SnapshotEntry:
    return SnapshotEntry(stat.S_IFREG | 0o644, content=text.encode())


@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [
        ("[alias]\n\tst = status\n", "[alias]\n\tst = !sh\n", True),
        ("[alias]\n", "[alias]\n\tx = !sh\n", True),
        ("[pager]\n\tlog = false\n", "[pager]\n\tlog = ./x\n", True),
        ("[core]\n", "[core]\n\teditor = a\\\nb\n", True),
        ("[core]\n", "[core]\n\tworktree = /\n", True),
        ("[alias]\n\tst = status\n", "[core]\n\tbare = true\n[alias]\n\tst = status\n", False),
        ("[core]\n\tpager = less\n", "[core]\n  pager = less # mine\n", False),
        ("", "[branch]\n\tx = a \\\npager = b\n", False),
    ],
    ids=[
        *(
            "an alias is changed",
            "an alias is added",
            "a pager is changed",
            "an editor of two lines",
        ),
        *("a folder of files", "settings are moved", "a comment is added", "a line that goes on"),
    ],
)
def test_a_change_of_settings_makes_git_run_a_program(before, after, runs):
    assert makes_git_run("/r/.git/config", entry(before), entry(after)) is runs


@pytest.mark.parametrize(
    "folder", ["a\\\n/../../../..", '"/"', "/"], ids=["two lines", "quoted", "plain"]
)
def test_a_new_repository_whose_files_are_elsewhere_is_told(tmp_path, folder):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(f"[core]\n\tworktree = {folder}\n")
    told = what_git_would_run(f"{tmp_path}/.git", (), [str(tmp_path)])
    assert told == "its configuration makes git change files elsewhere; look at it first"
