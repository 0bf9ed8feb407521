"""Installs the servers that tests start into an environment of their own.

One folder holds what to install: requirements.txt, and for packages of npm also package.json with
its lock; its requirements then name the Node that installs and runs them.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

TRIES = 2  # an index may be unreachable for a moment
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")


def install(source: Path, folder: Path) -> str:
    """Create the environment; return "" or the output of pip or npm when it failed."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    # Every package is pinned, so no dependency is resolved.
    wanted = ("--no-deps", "--requirement", str(source / "requirements.txt"))
    for words in ((*INSTALL, "--upgrade", "pip"), (*INSTALL, *wanted), ("-m", "pip", "check")):
        if error := run([python, *words], folder=Path()):
            return error
    return install_npm(source, folder) if (source / "package.json").exists() else ""


def install_npm(source: Path, folder: Path) -> str:
    """Install exactly the locked packages; no install scripts run."""
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(source / name, folder / name)
    programs = folder.resolve() / "bin"
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return run([str(programs / "npm"), "ci", "--loglevel=error", "--ignore-scripts"], folder=folder)


def run(command: list[str], *, folder: Path) -> str:
    """Run a command; return "" or the end of its output when it failed."""
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return (done.stdout[-2000:] or f"{command[0]} failed") if done.returncode else ""


def main(source: Path, folder: Path) -> int:
    """Install what a folder names; print one line where that is not possible."""
    error = ""
    for _ in range(TRIES):
        error = install(source, folder)
        if not error:
            return 0
    print(f"{error}\n{source} could not be installed; tests need it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
