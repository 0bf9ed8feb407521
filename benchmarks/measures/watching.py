"""Measures the scan for a command's changes in a workspace of 10,000 files, against `git status`.

``floor`` is `git status` in that folder, in a process of its own. ``git`` and ``plain`` are the two
scans around a command that changes three files, in a repository and in a folder without one;
``first`` is the first scan of a kernel in a repository, ``copying`` the first in a folder without
one, which copies all of it. The figure is wall ms; of the scans and of git the best of a few.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDERS, FILES, TIMES = 400, 25, 9
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def make_tree(root: Path) -> None:
    """Make 10,000 small files in 400 folders."""
    for number in range(FOLDERS):
        folder = root / f"d{number % 20}/e{number}"
        folder.mkdir(parents=True)
        for each in range(FILES):
            (folder / f"f{each}.py").write_text(f"x = {number * each}\n" * 50, encoding="utf-8")


def change(root: Path, number: int) -> None:
    """Make the changes of the command."""
    (root / "d0/e0/f0.py").write_text(f"x = {number}\n", encoding="utf-8")
    (root / f"d1/e1/new{number}.py").write_text("new\n", encoding="utf-8")
    (root / f"d2/e2/f{number}.py").unlink()


def measure(subject: str, root: Path) -> float:
    """Return wall ms."""
    if subject == "floor":
        spans = []
        for _ in range(TIMES):
            began = time.perf_counter()
            subprocess.run(["git", "status", "--short"], cwd=root, capture_output=True, check=True)
            spans.append(time.perf_counter() - began)
        return min(spans) * 1e3
    from agent_magics.file_history.workspace import WorkspaceMemory  # noqa: PLC0415

    memory = WorkspaceMemory(str(root))
    began = time.perf_counter()
    memory.begin()
    first = time.perf_counter() - began
    memory.end()
    if subject in ("first", "copying"):
        return first * 1e3
    spans = []
    for number in range(TIMES):
        began = time.perf_counter()
        memory.begin()
        spent = time.perf_counter() - began
        change(root, number)
        began = time.perf_counter()
        found = memory.end()
        spans.append(spent + time.perf_counter() - began)
        assert len(found.changes) == 3, found
    return min(spans) * 1e3


def main() -> None:
    """Measure one way; print milliseconds."""
    subject = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "root"
        root.mkdir()
        make_tree(root)
        if subject in ("floor", "git", "first"):
            for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
                subprocess.run([*GIT, *words], cwd=root, check=True)
            subprocess.run([*GIT, "gc", "-q"], cwd=root, check=True)
        print(json.dumps({"wall_ms": measure(subject, root)}))


if __name__ == "__main__":
    main()
