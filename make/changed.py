"""Names the tests of the files that have changed since main, one per line.

The unit tests of a folder of the package stand in a folder of the same name in tests/unit.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path


def changed() -> list[Path]:
    """Return the files that differ from main, new ones included."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    names = _git("diff", "--name-only", *base) + _git("ls-files", "--others", "--exclude-standard")
    return [path for path in map(Path, names) if path.exists()]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.split()


def tests_of(files: Iterable[Path]) -> set[Path]:
    """Return changed tests themselves, and for modules the nearest folder of tests."""
    tests = set()
    for file in files:
        if file.parts[0] == "tests" and file.match("test_*.py"):
            tests.add(file)
        elif file.parts[0] == "agent_magics":
            mirrors = (Path("tests/unit", *folder.parts[1:]) for folder in file.parents)
            tests.add(next(mirror for mirror in mirrors if mirror.is_dir()))
    return tests


if __name__ == "__main__":
    print(*sorted(tests_of(changed())), sep="\n")
