"""Measures calls that go to another thread and back, against a bare thread switch.

``floor`` is `loop.run_in_executor` with a function of five fields. ``pool`` is a sync parallel tool
through `ToolCallRuntime.dispatch`. ``nested`` is a real kernel in which live code makes 1,000
calls: each goes from the main thread to the engine's loop and back, with its events and the record.
The figure is the best batch, in microseconds of wall time per call.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from dispatching import ARGUMENTS, dispatch, five, measure
from kernels import notebook

SIZE = 200
CALLS = 1000
CODE = f"""
import time
arguments = {ARGUMENTS!r}
five(**arguments)
spans = []
for _ in range(5):
    began = time.perf_counter()
    for _ in range({CALLS}):
        five(**arguments)
    spans.append(time.perf_counter() - began)
print("TOOK", min(spans))
"""
CELL = f"""
from typing import Literal
from agent_magics import Agent, tool

@tool(inline=True)
def five(path: str, start: int, ratio: float, flags: list[str], mode: Literal["read", "write"]):
    "Return the five fields."
    return dict(path=path, start=start, ratio=ratio, flags=flags, mode=mode)

agent = Agent("gpt-4o", tools=["python", five], approval="never", loops=dict(changing=10**9))
done = await agent.call("python", dict(code={CODE!r}))
print(done.text)
"""


def hop() -> Callable[[], Awaitable[str]]:
    """Return a call that only switches to a thread and back."""
    loop = asyncio.get_running_loop()
    work = partial(five, **ARGUMENTS)

    async def once() -> str:
        return json.dumps(await loop.run_in_executor(None, work))

    return once


async def measure_here(subject: str) -> dict[str, float]:
    """Measure a subject that needs no kernel."""
    return await measure(hop() if subject == "floor" else dispatch("pool"), SIZE)


def nested(server: str) -> dict[str, float]:
    """Measure calls made by live code."""
    with notebook(f"{server}/s/loop1/v1") as kernel:
        texts = [message["content"].get("text", "") for message in kernel.run(CELL, 300)]
    return {"wall_us": float("".join(texts).split("TOOK")[1].split()[0]) / CALLS * 1e6}


def main() -> None:
    """Measure one way; print microseconds per call."""
    subject, server = sys.argv[1:3]
    found = nested(server) if subject == "nested" else asyncio.run(measure_here(subject))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
