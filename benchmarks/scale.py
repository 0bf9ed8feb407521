"""Simulates one kernel that coordinates many workers: what it can carry, and what breaks first.

    python benchmarks/scale.py [COSTS]

COSTS is a JSON object of milliseconds of the kernel's processor, as `benchmarks/cluster.py leases`
and `overhead` measure them: ``row`` (all that the kernel does for a row), ``message`` (one message
of a worker, without its rows) and ``lease`` (one report of a worker about the server's limits). The
kernel is one server with a queue; each worker sends a group of answers at most every 20 ms, a sign
of life every 0.5 s, and reports every 0.1 s where the provider has a limit, and each of these less
often where there are many workers (`Coordinator._spread`).
"""

import heapq
import json
import random
import sys

COSTS = {"row": 0.08, "message": 0.011, "lease": 0.15}
GROUP, TICK, REPORT, EACH = 0.02, 0.5, 0.1, 0.001
SECONDS = 5.0
# Rows a second that a worker can ask: 0.2 ms of one processor each.
MOST_A_WORKER = 3000.0


def simulate(workers: int, rate: float, costs: dict[str, float], seed: int = 1) -> dict[str, float]:
    """Run `workers` that ask `rate` rows a second in all; return how the kernel fares.

    Returns:
        ``busy``: seconds of work that come a second, ``late``: the longest wait of a message in
        seconds after `SECONDS`, ``rows``: rows a second that it gets done.
    """
    chance = random.Random(seed)
    each = min(rate / workers, MOST_A_WORKER)
    hold = GROUP
    while workers * EACH > hold:
        hold *= 2
    # A worker's group goes when its first answer is there, and no more often than `hold`.
    pause = max(hold, 1 / each)
    events = []
    for _ in range(workers):
        for kind, every in (
            ("rows", pause),
            ("tick", max(TICK, hold)),
            ("lease", max(REPORT, hold)),
        ):
            events.append((chance.random() * every, kind, every))
    heapq.heapify(events)
    work = {
        "rows": costs["message"] + costs["row"] * each * pause,
        "tick": costs["message"],
        "lease": costs["lease"],
    }
    free, busy, late, rows = 0.0, 0.0, 0.0, 0.0
    while events[0][0] < SECONDS:
        now, kind, every = events[0]
        heapq.heapreplace(events, (now + every * chance.uniform(0.9, 1.1), kind, every))
        begins = max(now, free)
        late = max(late, begins - now)
        free = begins + work[kind] / 1e3
        busy += work[kind] / 1e3
        if kind == "rows" and free <= SECONDS:
            rows += each * pause
    return {"busy": busy / SECONDS, "late": late, "rows": rows / SECONDS}


def most_rows(workers: int, costs: dict[str, float]) -> float:
    """Return the rows a second at which the kernel is busy all the time."""
    low, high = 1.0, workers * MOST_A_WORKER
    while high / low > 1.02:
        middle = (low * high) ** 0.5
        if simulate(workers, middle, costs)["busy"] < 1:
            low = middle
        else:
            high = middle
    return low


def main() -> None:
    costs = {**COSTS, **(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {})}
    print(f"milliseconds: {costs}")
    print("\n| requests a minute | rows a second | 1e9 rows take |\n|---|---|---|")
    for limit in (500, 10_000, 30_000, 150_000, 1_000_000):
        print(f"| {limit:,} | {limit / 60:,.0f} | {1e9 / (limit / 60) / 86400:,.1f} days |")
    print("\n| workers | rows a second | kernel busy | longest wait |\n|---|---|---|---|")
    for workers in (2, 10, 100, 1000):
        for rate in (500, 2500, 5000, 10_000):
            got = simulate(workers, rate, costs)
            print(f"| {workers:,} | {rate:,} | {got['busy']:.0%} | {got['late'] * 1e3:,.0f} ms |")
    print("\n| workers | most rows a second | 1e9 rows take |\n|---|---|---|")
    for workers in (2, 10, 100, 1000):
        most = most_rows(workers, costs)
        print(f"| {workers:,} | {most:,.0f} | {1e9 / most / 3600:,.0f} h |")


if __name__ == "__main__":
    main()
