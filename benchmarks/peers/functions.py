"""The plain functions that every peer turns into tools.

Those called once a turn note the CPU time of the process: the difference of two notes is one whole
turn (output, request, streamed answer, call), of all threads, without start-up.
"""

import asyncio
import time
from typing import Literal

NAP = 0.05
LOG = "".join(f"2026-01-01 12:00:00 worker {i:04d} read a row and went on\n" for i in range(943))
LOG = LOG[:50_000]
STEP = 997  # characters by which each page begins further on
FIVE = {"path": "/tmp/a/b.txt", "start": 12, "ratio": 0.5, "flags": ["x", "y"], "mode": "read"}
notes: list[float] = []


def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: first number.
        b: second number.
    """
    notes.append(time.process_time())
    return a + b


def read_log(a: int, b: int) -> str:
    """Read 50 KB of a log.

    Args:
        a: first page.
        b: number of pages.
    """
    notes.append(time.process_time())
    # Each page another one: the same again and again is what a guard against loops stops.
    start = a * STEP % len(LOG)
    return LOG[start:] + LOG[:start]


def mark() -> str:
    """Note that start-up is over."""
    notes.append(time.process_time())
    return "noted"


def nap(i: int) -> str:
    """Sleep for 50 ms, blocking the thread.

    Args:
        i: which call this is.
    """
    time.sleep(NAP)
    return f"nap {i}"


async def nap_async(i: int) -> str:
    """Sleep for 50 ms, awaiting.

    Args:
        i: which call this is.
    """
    await asyncio.sleep(NAP)
    return f"nap {i}"


def five(
    path: str, start: int, ratio: float, flags: list[str], mode: Literal["read", "write"]
) -> dict:
    """Return the five fields.

    Args:
        path: a path.
        start: first line.
        ratio: a share.
        flags: some flags.
        mode: what for.
    """
    return {"path": path, "start": start, "ratio": ratio, "flags": flags, "mode": mode}
