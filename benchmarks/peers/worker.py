"""Takes one measurement of one subject in a process of its own environment; prints a JSON object.

`worker.py SUBJECT MEASURE WIRE SERVER`; SUBJECT is a module of adapters/, MEASURE a function below.
"""

import time

BEGUN = time.perf_counter()  # a cold start counts from here

import asyncio  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import importlib.util  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import urllib.request  # noqa: E402
from collections.abc import Callable  # noqa: E402
from itertools import pairwise  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import fmean  # noqa: E402

import functions  # noqa: E402

TURNS, LARGE_TURNS, LONG, DELTAS, NAPS, COLD_TURNS = 200, 50, 1000, 20_000, 16, 5
LONG_END = 20  # turns at each end of a long conversation
BATCH, BATCHES = 400, 8


class Subject:
    """An adapter with one wire and one server, and one event loop for the whole process."""

    def __init__(self, name: str, wire: str, server: str):
        self.adapter = importlib.import_module(f"adapters.{name}")
        self.wire, self.server = wire, server
        self.dialect = getattr(self.adapter, "DIALECT", "")
        self.runner = asyncio.Runner()

    def connect(self, scenario: str, tools: list[Callable], turns: int) -> Callable[[], str]:
        """Make a new agent; return a function that runs it to its final text."""
        base_url = f"{self.server}/s/{scenario}{self.dialect}/v1"
        run = self.adapter.connect(self.wire, base_url, tools, turns)
        return lambda: self.result_of(run())

    def result_of(self, value):
        """Return the value, awaited if it is awaitable."""
        return self.runner.run(_awaited(value)) if inspect.isawaitable(value) else value

    def log(self, scenario: str) -> list[list[float]]:
        """Return and clear the server's log; also makes the server write its answers."""
        with urllib.request.urlopen(f"{self.server}/log/{scenario}{self.dialect}") as answer:
            return json.load(answer)


async def _awaited(value):
    return await value


# -- the loop --------------------------------------------------------------------------------------


def loop(subject: Subject, kind: str, tool: Callable, turns: int) -> tuple[list[float], dict]:
    """Measure each turn of a conversation after a short one: CPU ms; also wall ms and body size."""
    subject.connect(f"{kind}{COLD_TURNS}", [tool], COLD_TURNS)()
    scenario = f"{kind}{turns}"
    subject.log(scenario)
    run = subject.connect(scenario, [tool], turns)
    functions.notes.clear()
    gc.collect()
    began = time.perf_counter()
    text = run()
    wall = time.perf_counter() - began
    asked = subject.log(scenario)
    assert text.strip().endswith("All done."), text[:200]
    assert (len(functions.notes), len(asked)) == (turns, turns + 1), len(asked)
    each = [(after - before) * 1e3 for before, after in pairwise(functions.notes)]
    return each, {"wall_ms": wall * 1e3 / turns, "last_body_kb": asked[-1][2] / 1024}


def turns(subject: Subject) -> dict:
    """Measure 200 turns with a trivial tool: CPU ms a turn; the last 50 turns over the first 50."""
    each, more = loop(subject, "loop", functions.add, TURNS)
    first, last = fmean(each[:50]), fmean(each[-50:])
    return {
        "cpu_ms": fmean(each),
        "first_ms": first,
        "last_ms": last,
        "growth": last / first,
    } | more


def thousand(subject: Subject) -> dict:
    """Measure 1,000 turns: CPU ms of the last 20 over the first 20."""
    each, more = loop(subject, "loop", functions.add, LONG)
    first, last = fmean(each[:LONG_END]), fmean(each[-LONG_END:])
    return {
        "cpu_ms": fmean(each),
        "first_ms": first,
        "last_ms": last,
        "growth": last / first,
    } | more


def large(subject: Subject) -> dict:
    """Measure 50 turns of which each adds an output of 50 KB: CPU ms a turn."""
    each, more = loop(subject, "large", functions.read_log, LARGE_TURNS)
    whole = len(functions.LOG) * LARGE_TURNS / 1024
    carried = more["last_body_kb"] / whole
    assert carried > 0.95, f"only {carried:.0%} of the outputs travel"
    return {"cpu_ms": fmean(each), "carried": carried} | more


def deltas(subject: Subject) -> dict:
    """Measure one answer of 20,000 deltas: CPU s, from a first tool call on where there is one."""
    kind, tools, rounds = "deltas", [functions.mark], 1
    if subject.dialect:  # its agent cannot be measured so; see the adapter
        kind, tools, rounds = "text", [], 0
    subject.connect(f"{kind}100", tools, rounds)()
    scenario = f"{kind}{DELTAS}"
    subject.log(scenario)
    run = subject.connect(scenario, tools, rounds)
    functions.notes[:] = [time.process_time()]
    began = time.perf_counter()
    text = run()
    cpu, wall = time.process_time() - functions.notes[-1], time.perf_counter() - began
    assert len(text.strip()) == DELTAS * len("word ") - 1, len(text)
    return {"cpu_s": cpu, "wall_s": wall}


def cold(subject: Subject) -> dict:
    """Measure import, client, schemas and five turns, from the first line of this file: wall s."""
    text = subject.connect(f"loop{COLD_TURNS}", [functions.add], COLD_TURNS)()
    assert text.strip().endswith("All done."), text[:200]
    return {"wall_s": time.perf_counter() - BEGUN, "cpu_s": time.process_time()}


def parallel_async(subject: Subject) -> dict:
    """Measure 16 calls of an async 50 ms tool: wall ms from the answer to the next request."""
    return _side_by_side(subject, "apar", functions.nap_async)


def parallel_sync(subject: Subject) -> dict:
    """Measure the same with a tool that blocks its thread."""
    return _side_by_side(subject, "par", functions.nap)


def _side_by_side(subject: Subject, kind: str, tool: Callable) -> dict:
    scenario = f"{kind}{NAPS}"
    subject.connect(scenario, [tool], 1)()
    subject.log(scenario)
    run = subject.connect(scenario, [tool], 1)
    began = time.perf_counter()
    run()
    wall = time.perf_counter() - began
    asked = subject.log(scenario)
    assert len(asked) == 2, asked
    return {"wall_ms": wall * 1e3, "gap_ms": (asked[1][0] - asked[0][1]) * 1e3}


# -- single costs ----------------------------------------------------------------------------------


def dispatch(subject: Subject) -> dict:
    """Measure one call with five typed fields, JSON in, text out, no HTTP: CPU us, best batch."""
    once = subject.adapter.dispatcher(functions.five, json.dumps(functions.FIVE))
    found = once()
    plain = not inspect.isawaitable(found)
    text = subject.result_of(found)
    assert "b.txt" in text, text
    assert "read" in text, text

    async def batch() -> float:
        began = time.process_time()
        for _ in range(BATCH):
            await once()
        return (time.process_time() - began) / BATCH * 1e6

    def plain_batch() -> float:
        began = time.process_time()
        for _ in range(BATCH):
            once()
        return (time.process_time() - began) / BATCH * 1e6

    taken = [plain_batch() if plain else subject.runner.run(batch()) for _ in range(BATCHES + 1)]
    return {"cpu_us": min(taken[1:])}


def tools(subject: Subject) -> dict:
    """Measure making 100 five-field functions tools with their schemas: CPU ms."""
    path = Path(os.environ["BENCH_TOOLS"])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    made = [value for name, value in vars(module).items() if name.startswith("five_")]
    assert len(made) == 100, len(made)
    subject.adapter.make_tool(functions.five)
    gc.collect()
    began = time.process_time()
    kept = [subject.adapter.make_tool(function) for function in made]
    return {"cpu_ms": (time.process_time() - began) * 1e3, "tools": len(kept)}


def imports(subject: Subject) -> dict:
    """Measure the import statement of a program: wall ms, and memory in MB if known."""
    known, before = len(sys.modules), _resident()
    began, began_cpu = time.perf_counter(), time.process_time()
    exec(subject.adapter.IMPORT, {})
    wall, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    memory, modules = _resident() - before, len(sys.modules) - known
    return {"wall_ms": wall * 1e3, "cpu_ms": cpu * 1e3, "memory_mb": memory, "modules": modules}


def _resident() -> float:
    """Return the memory of this process in MB; 0 where the system has no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


MEASURES = {
    "turns": turns,
    "thousand": thousand,
    "large": large,
    "deltas": deltas,
    "cold": cold,
    "parallel_async": parallel_async,
    "parallel_sync": parallel_sync,
    "dispatch": dispatch,
    "tools": tools,
    "imports": imports,
}


def main() -> None:
    """Measure, print, and exit without waiting for threads that a peer has left."""
    name, measure, wire, server = sys.argv[1:5]
    figures = MEASURES[measure](Subject(name, wire, server))
    print("\nFIGURES " + json.dumps(figures), flush=True)
    os._exit(0)


main()
