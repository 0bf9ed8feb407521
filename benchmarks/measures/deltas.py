"""Measures a long streamed answer: CPU time of all threads from a first call to the text."""

import json
import sys
import time

from clients import connect, log

DELTAS = 20_000
notes: list[float] = []


def mark() -> str:
    """Note that start-up is over."""
    notes.append(time.process_time())
    return "noted"


def main() -> None:
    """Stream a short answer, then the long one; print CPU in s."""
    subject, server = sys.argv[1:3]
    connect(subject, server, "deltas100", [mark])()
    scenario = f"deltas{DELTAS}"
    log(server, scenario)
    run = connect(subject, server, scenario, [mark])
    notes.clear()
    wall = time.perf_counter()
    text = run()
    cpu, wall = time.process_time() - notes[0], time.perf_counter() - wall
    assert len(text) == DELTAS * len("word "), len(text)
    print(json.dumps({"cpu_s": cpu, "wall_s": wall, "us_per_delta": cpu / DELTAS * 1e6}))


main()
