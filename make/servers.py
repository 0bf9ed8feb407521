"""Installs one of the model servers that the tests start into an environment of its own."""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

TRIES = 2  # an index may be away for a moment
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")


def install(name: str, folder: Path) -> str:
    """Make the environment anew; return "" or what pip said when it failed."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    # Every package is named with its version, so none is looked for that is not.
    wanted = ("--no-deps", "--requirement", f"tests/servers/{name}/requirements.txt")
    for packages in (("--upgrade", "pip"), wanted):
        done = subprocess.run(
            [python, *INSTALL, *packages],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if done.returncode:
            return done.stdout[-2000:]
    return ""


def main(name: str) -> int:
    """Install the server; say in one line that it is missing where that cannot be done."""
    folder = Path("build", "servers", name)
    said = ""
    for _ in range(TRIES):
        said = install(name, folder)
        if not said:
            return 0
    print(f"{said}\nthe server {name} could not be installed; its tests need it", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
