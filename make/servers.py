"""Installs servers that the tests start into an environment of their own.

What is wanted stands in one folder: requirements.txt, and where there are packages of npm also
package.json with its lock; its requirements then name the Node that installs and runs them.
"""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

TRIES = 2  # an index may be away for a moment
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")


def install(source: Path, folder: Path) -> str:
    """Make the environment anew; return "" or what pip or npm said when it failed."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    # Every package is named with its version, so none is looked for that is not.
    wanted = ("--no-deps", "--requirement", str(source / "requirements.txt"))
    for packages in (("--upgrade", "pip"), wanted):
        if said := run([python, *INSTALL, *packages], folder=Path()):
            return said
    return install_npm(source, folder) if (source / "package.json").exists() else ""


def install_npm(source: Path, folder: Path) -> str:
    """Install exactly what the lock says; packages run nothing meanwhile."""
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copy(source / name, folder / name)
    programs = folder.resolve() / "bin"
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return run([str(programs / "npm"), "ci", "--loglevel=error", "--ignore-scripts"], folder=folder)


def run(command: list[str], *, folder: Path) -> str:
    """Run a command; return "" or the end of what it said when it failed."""
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
    """Install what a folder wants; say in one line that it is missing where that cannot be done."""
    said = ""
    for _ in range(TRIES):
        said = install(source, folder)
        if not said:
            return 0
    print(f"{said}\n{source} could not be installed; tests need it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
