"""Makes the peers' own environments, and reports their versions."""

import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "peers"
PINNED: dict[str, list[str]] = {
    name: peer["requires"]
    for name, peer in tomllib.loads((HERE / "versions.toml").read_text("utf-8")).items()
}
NICE = ["nice"] if os.name == "posix" else []


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment."""
    return BUILD / peer / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def install(peers: list[str]) -> None:
    """Make or complete the environments of `peers`, with bytecode compiled."""
    # An image may forbid bytecode, and an import without it measures the compiler.
    surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    for peer in peers:
        print(f"{peer}: {', '.join(PINNED[peer])}", file=sys.stderr, flush=True)
        if not python_of(peer).exists():
            venv.create(BUILD / peer, with_pip=True)
        python = [*NICE, str(python_of(peer))]
        subprocess.run([*python, *pip, *PINNED[peer]], env=surroundings, check=True)
        folder = BUILD / peer / ("Lib" if os.name == "nt" else "lib")
        compile_all = [*python, "-m", "compileall", "-q", "-j", "1", str(folder)]
        # Packages carry files that are no Python of this version, for tests or templates.
        subprocess.run(compile_all, env=surroundings, stdout=subprocess.DEVNULL, check=False)


def versions(peer: str) -> str:
    """Return the installed versions of the pinned packages, or what is missing."""
    names = [requirement.split("==")[0].split("[")[0] for requirement in PINNED[peer]]
    program = "import sys; from importlib.metadata import version as v; "
    program += "print(', '.join(f'{n} {v(n)}' for n in sys.argv[1:]))"
    done = subprocess.run(
        [str(python_of(peer)), "-c", program, *names], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "not whole"
