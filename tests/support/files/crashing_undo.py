"""Kills an undo at each of its steps, and finishes it in another process; prints a line each.

A child is forked for every step, which is why this runs as a program and not inside a test.
"""

import json
import os
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

from agent_magics.file_history.journal import ChangeJournal
from agent_magics.file_history.workspace import WorkspaceMemory
from tests.support import forks

_STEPS = ("rename", "replace", "unlink", "link", "mkdir", "rmdir", "symlink", "fchmod", "write")


def make_before(root: Path) -> None:
    """Make the tree that the undo must restore."""
    (root / "gone/deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "gone/deep/a").write_text("a\n", encoding="utf-8")
    (root / "gone/b").write_text("b\n", encoding="utf-8")
    (root / "changed").write_text("old\n", encoding="utf-8")
    (root / "mode").write_text("mode\n", encoding="utf-8")
    (root / "link").symlink_to("changed")
    (root / "file").write_text("was a file\n", encoding="utf-8")


def change(root: Path) -> None:
    """Make the changes to undo: files and folders made, changed, removed, and swapped."""
    shutil.rmtree(root / "gone")
    (root / "empty").rmdir()
    (root / "changed").write_text("new\n", encoding="utf-8")
    (root / "mode").chmod(0o600)
    (root / "link").unlink()
    (root / "link").symlink_to("mode")
    (root / "file").unlink()
    (root / "file").mkdir()
    (root / "file/in").write_text("in\n", encoding="utf-8")
    (root / "made/deep").mkdir(parents=True)
    (root / "made/deep/c").write_text("c\n", encoding="utf-8")


def tree_of(root: Path) -> dict[str, str]:
    """Return the entries below `root`, each as its kind or its content."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = f"{path.stat().st_mode & 0o777:o} {path.read_text(encoding='utf-8')}"
    return found


def _undo(folder: str, crash_at: int) -> None:
    """Undo the last turn; this process is killed before step `crash_at`."""
    journal = ChangeJournal(folder).load()
    count = 0

    def counted(step):
        def run(*args, **kwargs):
            nonlocal count
            count += 1
            if count == crash_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*args, **kwargs)

        return run

    for name in _STEPS:
        setattr(os, name, counted(getattr(os, name)))
    assert not journal.undo().obstacles


def main() -> None:
    """Run the undo with a crash at step 1, 2, 3 ... until it ends by itself."""
    parent = Path(os.path.realpath(sys.argv[1]))
    step, ended = 0, False
    while not ended:
        step += 1
        root, folder = parent / f"root{step}", parent / f"journal{step}"
        root.mkdir()
        make_before(root)
        before = tree_of(root)
        memory = WorkspaceMemory(str(root))
        memory.begin()
        change(root)
        journal = ChangeJournal(str(folder), {})
        journal.add("t", "turn", memory.end().changes, memory.content)
        journal.close()
        after = tree_of(root)
        _, status = os.waitpid(forks.start(partial(_undo, str(folder), step)), 0)
        ended = not os.WIFSIGNALED(status)
        assert not ended or os.WEXITSTATUS(status) == 0
        crashed = tree_of(root)
        again = ChangeJournal(str(folder)).load()
        if again.turns:  # else it was killed after its last step: the word that it is done
            assert not again.undo().obstacles
        again.close()
        row = {"step": step, "ended": ended, "crashed": crashed, "finished": tree_of(root)}
        sys.stdout.write(json.dumps({**row, "before": before, "after": after}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
