"""Measures how long it takes to resume a conversation of 1,000 turns, and to list 10,000.

``floor`` parses the lines of the same record as JSON. ``ours`` calls `Agent.resume`. ``list`` calls
`conversations()` in a folder of 10,000 records: at first, then with the index that the first call
wrote, in a process where nothing has changed since; beside a bare look at all these files, with the
index parsed as JSON.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent_magics import Agent, Call, ScriptedModel, conversations, tool

TURNS, RECORDS = 1000, 10_000
TIMES = 5


def make_record(folder: str) -> tuple[str, Path]:
    """Have a conversation of `TURNS` turns, each with one call; return its id and its record."""

    @tool
    def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    turns = [each for n in range(TURNS) for each in (Call("add", {"a": n, "b": 1}), "Done.")]
    with Agent(ScriptedModel(turns), [add], approval="never", cwd=folder) as agent:
        for number in range(TURNS):
            agent.run_sync(f"Add one to {number}.")
        found = agent.conversation_id
    (record,) = Path(os.environ["XDG_STATE_HOME"]).rglob(f"{found}.jsonl")
    return found, record


def best_of(work: Callable[[], None]) -> float:
    """Return the least time that `work` takes, in ms."""
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took) * 1e3


def resume(conversation: str) -> None:
    """Resume a conversation, and give it back."""
    Agent.resume(conversation).close()


def parse(record: Path) -> None:
    """Parse each line of a record."""
    for line in record.read_bytes().splitlines():
        json.loads(line)


def look(folder: Path) -> None:
    """Look at each file in the folder of records, and parse the index."""
    for place, _, _ in os.walk(folder):
        with os.scandir(place) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
    json.loads((folder / "index.json").read_bytes())


def copy_often(record: Path) -> None:
    """Make `RECORDS` records that differ in their ids, each with the first turn of `record`."""
    lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if '"TurnCompleted"' in line) + 1
    text, first = "".join(lines[:end]), record.stem
    for number in range(RECORDS):
        name = f"{number:032x}"
        record.with_name(f"{name}.jsonl").write_text(text.replace(first, name), encoding="utf-8")


def main() -> None:
    """Measure one subject, and print its figures."""
    subject = sys.argv[1]
    folder = tempfile.mkdtemp()
    os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
    try:
        found, record = make_record(folder)
        if subject == "floor":
            figures = {"wall_ms": best_of(lambda: parse(record))}
        elif subject == "ours":
            figures = {"wall_ms": best_of(lambda: resume(found))}
        else:
            copy_often(record)
            began = time.perf_counter()
            assert len(conversations()) == RECORDS + 1
            figures = {"first_ms": (time.perf_counter() - began) * 1e3}
            figures["wall_ms"] = best_of(lambda: len(conversations()))
            figures["of_bare"] = figures["wall_ms"] / best_of(partial(look, record.parents[3]))
    finally:
        shutil.rmtree(folder)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
