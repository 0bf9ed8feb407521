"""Checks for the programs that tests start; installs missing ones where that is allowed."""

import os
import shutil
import subprocess
import sys

# Any one program of a row will do; the package is Debian's name for it.
NEEDED = {
    # The engine without the windows: the same pages in a sixth less of processor time.
    "chromium-headless-shell": (
        *("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"),
    ),
    "git": ("git",),
    "ripgrep": ("rg",),
    # Everyday commands, which must work in the sandbox.
    "build-essential": ("gcc",),
    "nodejs": ("node",),
    "patch": ("patch",),
    "procps": ("ps",),
    "sqlite3": ("sqlite3",),
    "unzip": ("unzip",),
    "xz-utils": ("xz",),
    "zip": ("zip",),
}


def missing() -> list[str]:
    """Return the packages whose programs are not on the path."""
    return [
        package
        for package, programs in NEEDED.items()
        if not any(shutil.which(program) for program in programs)
    ]


def may_install() -> bool:
    """Return whether this is root on a system with apt."""
    return hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: list[str]) -> None:
    """Install system packages; show apt's output only when it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            print(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}", file=sys.stderr)
            return


def main() -> int:
    """Install or name missing packages; fail only in CI, where nothing may be skipped."""
    wanted = missing()
    if wanted and may_install():
        print(f"installing for the tests with apt-get: {' '.join(wanted)}", flush=True)
        install(wanted)
        wanted = missing()
    if not wanted:
        return 0
    print(f"for all tests to run, install: {' '.join(wanted)}", file=sys.stderr)
    return 1 if os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
