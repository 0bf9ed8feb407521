"""Measures how long 16 calls of a blocking 50 ms tool in one answer take together."""

import json
import sys
import time

from clients import connect, log

CALLS = 16
started: list[float] = []
ended: list[float] = []


def nap(i: int) -> str:
    """Sleep for 50 ms, blocking the thread.

    Args:
        i: which call this is.
    """
    started.append(time.perf_counter())
    time.sleep(0.05)
    ended.append(time.perf_counter())
    return f"nap {i}"


def main() -> None:
    """Print the time from the written answer to the next request as the server sees it, in ms."""
    subject, server = sys.argv[1:3]
    scenario = f"par{CALLS}"
    connect(subject, server, scenario, [nap])()
    run = connect(subject, server, scenario, [nap])
    log(server, scenario)
    started.clear()
    ended.clear()
    text = run()
    asked = log(server, scenario)
    assert text.endswith("Rested."), text
    assert [row[3] for row in asked] == [0, CALLS], asked
    figures = {
        "gap_ms": (asked[1][0] - asked[0][1]) * 1e3,
        "tools_ms": (max(ended) - min(started)) * 1e3,
        "after_ms": (asked[1][0] - max(ended)) * 1e3,
    }
    print(json.dumps(figures))


main()
