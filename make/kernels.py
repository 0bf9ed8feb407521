"""Runs the tests of live code with older versions of ipykernel; `make test` uses the newest.

Each version has an environment of its own that holds nothing but it; all other packages are those
of the environment that this program runs in. Where tests failed, all tests of that version run
again: a kernel that hangs also fails the tests after it, so that they cannot be told apart. Such
hangs are known of ipykernel 7.3.0: after an interrupt it may take no request any more, also where
the cell was plain Python (at the 53rd interrupt of `time.sleep`; with 7.4.0 at none of 58).
"""

import site
import subprocess
import sys
import time
import venv
from pathlib import Path

# The oldest that is supported in kind, and those that answer clicks in other ways than the newest.
VERSIONS = ("6.31.0", "7.1.0", "7.3.0")
FOLDER = Path("build/kernels")
TESTS = [
    f"tests/kernel/{name}"
    for name in (
        "cells/test_background.py",
        "cells/test_ways_to_run.py",
        "endings/test_interrupt.py",
        "lab/test_answers.py",
        "live/test_code.py",
        "live/test_guard_rails.py",
        "live/test_scratch_values.py",
        "live/test_tools.py",
    )
]
WORKERS = ("-ptests.support.workers", "--workers=3")
TRIES = 2  # an index may be unreachable for a moment
RUNS = 3  # of all tests, until none fails
MOST = 3  # failures; what hangs costs half a minute each


def install(version: str) -> Path:
    """Make the environment of a version where there is none; return its Python.

    Raises:
        SystemExit: the version could not be installed, or another one would be imported.
    """
    folder = (FOLDER / version).resolve()
    python, stamp = folder / "bin" / "python", folder / "made.stamp"
    # Behind its own packages; the newest ipykernel stands there too, and is found second.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages()]
    made_for = "".join([sys.version, "\n", *lines])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == made_for:
        return python
    print(f"installing ipykernel {version} into {FOLDER / version} (once)", flush=True)
    venv.create(folder, clear=True, with_pip=False)
    wanted = ("install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile")
    pip = [sys.executable, "-m", "pip", "--python", str(python), *wanted]
    installing = (
        subprocess.run([*pip, f"ipykernel=={version}"], check=False) for _ in range(TRIES)
    )
    if all(done.returncode for done in installing):
        raise SystemExit(f"ipykernel {version} could not be installed")
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "everything_else.pth").write_text("".join(lines), encoding="utf-8")
    ask = [str(python), "-c", "import ipykernel; print(ipykernel.__version__)"]
    found = subprocess.run(ask, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    if found != version:
        raise SystemExit(f"{FOLDER / version} has ipykernel {found}: remove it and try again")
    stamp.write_text(made_for, encoding="utf-8")
    return python


def passes(version: str, options: list[str]) -> bool:
    """Run the tests with a version of ipykernel; up to three times where one failed."""
    python = install(version)
    cache = (FOLDER / version / "cache").resolve()
    print(f"ipykernel {version}:", flush=True)
    began = time.monotonic()
    command = [str(python), "-m", "pytest", "--quiet", f"--override-ini=cache_dir={cache}"]
    command += [*WORKERS, f"--maxfail={MOST}", *options, *TESTS]
    good = False
    for run in range(RUNS):
        if run:
            print(f"ipykernel {version}: broken, or unstable? Once more:", flush=True)
        good = not subprocess.run(command, check=False).returncode
        if good:
            print("UNSTABLE: see above what failed" if run else "stable", flush=True)
            break
    print(f"ipykernel {version}: {time.monotonic() - began:.0f} s", flush=True)
    return good


def main() -> int:
    results = [passes(version, sys.argv[1:]) for version in VERSIONS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
