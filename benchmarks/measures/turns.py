"""Measures a turn of the tool loop, at the beginning and at the end of a long conversation.

The tool notes the CPU time of the process at each call: the difference of two notes is one whole
turn (output, request, streamed answer, call), of all threads, without start-up.
"""

import json
import sys
import time
from itertools import pairwise
from statistics import fmean

from clients import connect, log

TURNS = 200
notes: list[float] = []


def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: first number.
        b: second number.
    """
    notes.append(time.process_time())
    return a + b


def main() -> None:
    """Run the loop once short and once long; print CPU per turn in ms."""
    subject, server = sys.argv[1:3]
    connect(subject, server, "loop5", [add])()
    scenario = f"loop{TURNS}"
    log(server, scenario)
    run = connect(subject, server, scenario, [add])
    notes.clear()
    cpu_start, wall = time.process_time(), time.perf_counter()
    text = run()
    ended, wall = time.process_time(), time.perf_counter() - wall
    asked = log(server, scenario)
    assert text.endswith("All done."), text[:200]
    assert (len(notes), len(asked)) == (TURNS, TURNS + 1), (len(notes), len(asked))
    turns = [(after - before) * 1e3 for before, after in pairwise(notes)]
    first, last = fmean(turns[:50]), fmean(turns[-50:])
    figures = {
        "cpu_ms": fmean(turns),
        "first_ms": first,
        "last_ms": last,
        "growth": last / first,
        "start_ms": (notes[0] - cpu_start) * 1e3,
        "whole_cpu_ms": (ended - cpu_start) * 1e3,
        "wall_ms": wall * 1e3 / TURNS,
        "last_body_kb": asked[-1][2] / 1024,
    }
    print(json.dumps(figures))


main()
