"""Compares a map through the batch API with a plain one: equal tables, half the price.

    PYTHONPATH=. python benchmarks/measures/batches.py [ROWS]

The server is a loopback one that speaks the API (`tests.support.models.batch_server`), whose
batches end as soon as they are looked at a few times. It prints rows a second and CPU a row of
both, and the ratio of their costs.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pydantic

from agent_magics import Agent
from tests.support.models.batch_server import BatchServer


class Complaint(pydantic.BaseModel):
    """What a customer complains about."""

    topic: str
    angry: bool
    reason: str


def main() -> None:
    """Run both once; print their figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rows = [f"Order {number}: the parcel came late." for number in range(count)]
    folder = Path(tempfile.mkdtemp())
    figures: dict[str, object] = {"rows": count}
    results = {}
    with BatchServer() as server:
        agent = Agent("gpt-4o-mini", base_url=server.base_url, api_key="x")
        for batch in (False, True):
            began, cpu = time.perf_counter(), time.process_time()
            done = agent.map_sync(
                "Which complaint is this? {{text}}",
                rows,
                output=Complaint,
                cache=folder / f"{batch}.sqlite",
                ask_above=None,
                batch=batch,
            )
            name = "batch" if batch else "plain"
            figures[f"{name}_rows_s"] = count / (time.perf_counter() - began)
            figures[f"{name}_cpu_ms"] = (time.process_time() - cpu) / count * 1e3
            results[batch] = done
    plain, half = results[False], results[True]
    figures["equal"] = half.frame.drop(columns="cost").equals(plain.frame.drop(columns="cost"))
    figures["failed"] = len(plain.failed) + len(half.failed)
    figures["cost_ratio"] = half.cost / plain.cost
    print(json.dumps(figures), flush=True)
    os._exit(0)  # connections that are open would only be complained of


main()
