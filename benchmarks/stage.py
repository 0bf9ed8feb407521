"""What surrounds a measurement: the scripted server, a clean environment, the machine."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
STEPS = 300_000  # of the loop that shows how fast the machine is


@contextmanager
def scripted_server() -> Iterator[str]:
    """Run server.py while the block runs; yields its address."""
    command = [sys.executable, str(HERE / "server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def environment(home: str, *path: Path) -> dict[str, str]:
    """What a measurement sees: an empty home, `path`, no proxy, no key, bytecode kept."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "PYTHON")) and not name.lower().endswith("_proxy")
    }
    kept |= {"HOME": home, "XDG_STATE_HOME": f"{home}/state"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, path))} if path else kept


def machine(packages: Iterable[str]) -> str:
    """When and where this runs, with which versions of `packages`."""
    found = []
    for name in packages:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    load = f", load {load_average():.1f}" if hasattr(os, "getloadavg") else ""
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"{when}, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"{', '.join(found)}; {os.cpu_count()} cores{load}"
    )


def load_average() -> float:
    """How many processes wanted to run in the last minute; 0 where the system does not tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def speed() -> float:
    """CPU ms that a fixed loop takes, the best of three: how fast the machine is just now."""
    taken = []
    for _ in range(3):
        began, total, seen = time.process_time(), 0, {}
        for step in range(STEPS):
            seen[step & 1023] = total
            total += step
        taken.append(time.process_time() - began)
    return min(taken) * 1e3
