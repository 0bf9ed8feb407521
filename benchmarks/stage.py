"""Sets up measurements: the scripted server, a clean environment, the machine's description."""

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
    """Run server.py inside this context; yield its address."""
    command = [sys.executable, str(HERE / "server.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def environment(home: str, *path: Path) -> dict[str, str]:
    """Return the environment of a measurement: an empty home, `path`, no proxy, no key."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OPENAI_", "PYTHON")) and not name.lower().endswith("_proxy")
    }
    kept |= {"HOME": home, "XDG_STATE_HOME": f"{home}/state"}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, path))} if path else kept


def machine(packages: Iterable[str]) -> str:
    """Return the date, the machine, and the versions of `packages`."""
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
    """Return the load average of the last minute; 0 where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def speed() -> float:
    """Return the CPU ms of a fixed loop, the best of three, as a measure of the machine's speed."""
    taken = []
    for _ in range(3):
        began, total, seen = time.process_time(), 0, {}
        for step in range(STEPS):
            seen[step & 1023] = total
            total += step
        taken.append(time.process_time() - began)
    return min(taken) * 1e3
