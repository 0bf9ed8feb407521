"""Runs the few tests that failed in the last run again, alone: are they broken, or unstable?

Some ten thousand tests start kernels, browsers and commands on machines of any speed. A test that
failed once and then passes three times of three is reported as unstable, by name, and does not fail
the run; it is still a bug, of the test or of what it tests, and must be fixed. Failures in more
than twelve files are never repeated; one that hangs a shared kernel also fails those after it. The
order is that of the files, since the cells of a notebook need those above them.
"""

import json
import subprocess
import sys
from pathlib import Path

MOST = 12  # files
TIMES = 3
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    found = json.loads(FAILED.read_text(encoding="utf-8")) if FAILED.exists() else ()
    # pytest's cache keeps failures of files that are gone.
    failed = [name for name in found if Path(name.split("::")[0]).exists()]
    files = {name.split("::")[0] for name in failed}
    if not 0 < len(files) <= MOST:
        print(f"Tests of {len(files)} files failed; only those of 1 to {MOST} are run again.")
        return 1
    # A notebook's cell needs the cells above it.
    targets = sorted({name.split("::")[0] if ".ipynb" in name else name for name in failed})
    for _ in range(TIMES):
        if subprocess.run([*sys.argv[1:], *targets], check=False).returncode:
            print("Broken:", *failed, sep="\n  ")
            return 1
    print(f"UNSTABLE: failed once, then passed {TIMES} times of {TIMES}:", *failed, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
