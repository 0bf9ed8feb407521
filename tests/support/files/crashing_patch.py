"""Applies one patch repeatedly, killed one step later each time; prints the state that is left.

Run as a program with a folder. Each line of its output is a JSON object: the number of steps,
whether the patch was finished, and the files of the tree with their texts.
"""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from agent_magics.patch.plan import plan_patch, read_patch
from tests.support import forks

PATCH = """*** Begin Patch
*** Update File: changed.txt
@@
-old
+new
*** Add File: made/deep/added.txt
+added
*** Delete File: removed.txt
*** Update File: moved.txt
*** Move to: made/there.txt
@@
-old
+new
*** End Patch
"""
BEFORE = {"changed.txt": "old\nend\n", "removed.txt": "removed\n", "moved.txt": "old\n"}
# What reaches the disk: everything that makes, fills, renames or removes an entry of a folder.
_STEPS = frozenset(("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chown"))


def _kill_at(step: int) -> None:
    """Kill this process directly before its step number `step`."""
    passed = 0

    def watch(event: str, arguments: tuple) -> None:
        nonlocal passed
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if event not in _STEPS and event != "os.chmod" and not writes:
            return
        passed += 1
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def _apply(folder: Path, step: int) -> None:
    plan = plan_patch(read_patch(PATCH), lambda path: folder / path)
    _kill_at(step)
    plan.apply()


def main() -> None:
    """Crash at every step until none is left."""
    root = Path(sys.argv[1])
    step, ended = 0, False
    while not ended:
        step += 1
        folder = root / str(step)
        folder.mkdir()
        for name, text in BEFORE.items():
            (folder / name).write_text(text)
        _, status = os.waitpid(forks.start(partial(_apply, folder, step)), 0)
        ended = os.WIFEXITED(status)
        assert ended or os.WTERMSIG(status) == signal.SIGKILL, status
        files = {
            str(path.relative_to(folder)): path.read_text()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        sys.stdout.write(json.dumps({"step": step, "ended": ended, "files": files}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
