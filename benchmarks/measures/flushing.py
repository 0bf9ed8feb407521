"""Measures what the `fsync` at the end of a turn costs.

``floor`` runs turns of one call with a scripted model and `fsync` replaced by nothing; ``ours``
lets it be, and then appends as many bytes as a turn does to another file, with a bare `fsync`.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from agent_magics import Agent, Call, ScriptedModel, tool

TURNS = 100


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def time_turns(folder: str) -> tuple[float, int]:
    """Return the median time of a turn, in ms, and the bytes that each adds to the record."""
    turns = [each for n in range(TURNS) for each in (Call("add", {"a": n, "b": 1}), "Done.")]
    took = []
    with Agent(ScriptedModel(turns), [add], approval="never", cwd=folder) as agent:
        for number in range(TURNS):
            began = time.perf_counter()
            agent.run_sync(f"Add one to {number}.")
            took.append(time.perf_counter() - began)
    (record,) = Path(folder).rglob("*.jsonl")
    return median(took) * 1e3, record.stat().st_size // TURNS


def time_fsync(folder: str, size: int) -> float:
    """Return the median time of a bare `fsync` after `size` bytes, in ms."""
    took = []
    with Path(folder, "bare").open("ab", buffering=0) as file:
        for _ in range(TURNS):
            file.write(b"x" * size)
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took) * 1e3


def main() -> None:
    """Measure one subject, and print its figures."""
    if sys.argv[1] == "floor":
        os.fsync = lambda _: None  # type: ignore[assignment]
    # Beside the checkout: /tmp is in memory on some machines.
    folder = tempfile.mkdtemp(dir=Path(__file__).parents[2], prefix=".bench-")
    os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
    try:
        turn, size = time_turns(folder)
        figures = {"turn_ms": turn, "bytes": size}
        if sys.argv[1] == "ours":
            figures["fsync_ms"] = time_fsync(folder, size)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
