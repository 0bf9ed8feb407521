"""Compares the CPU time of four sub-agents beside each other with that of one agent in a row.

`python benchmarks/delegation.py` prints the ratio; both make the same 40 requests with 36 calls to
a model that follows a script. Times of one machine at one moment mean little, so only the ratio of
the best of several rounds is printed. Then it prints by how much `wait` exceeds its time-out while
four sub-agents burn a processor in commands, and how long after an interrupt of the parent the last
of them has ended, with its processes.
"""

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.models.base import ModelRequest
from agent_magics.protocol.events import ToolCallCompleted, ToolCallRunning

AGENTS, REQUESTS, ROUNDS = 4, 10, 40
INTERRUPTS, WAITS, WAIT = 10, 10, 0.1  # rounds, calls of `wait` in each, and their time-out in s
SCRIPT = [*[Call("list_dir", {"path": "."})] * (REQUESTS - 1), "Done."]
OPTIONS = {
    "approval": "never",
    "loops": dict.fromkeys(("identical", "near_identical", "periods", "changing"), 1000),
}


class Follower:
    """Gives every conversation the same script, or that of the parent to the first."""

    source, name = "script", "gpt-5.5"

    def __init__(self, script: list = SCRIPT * AGENTS, parent: list | None = None) -> None:
        self._script, self._parent = script, parent
        self._models: dict[str, ScriptedModel] = {}

    def stream(self, request: ModelRequest):
        """Send the next answer of the conversation."""
        is_parent = self._parent is not None and not self._models
        script = ScriptedModel(self._parent if is_parent else self._script)
        return self._models.setdefault(request.conversation, script).stream(request)

    async def close(self) -> None:
        """Do nothing."""


def beside() -> None:
    with Agent(Follower(), "coding", **OPTIONS) as agent:
        handles = [agent.spawn(f"Look at {number}.") for number in range(AGENTS)]
        assert all(handle.result(60).text == "Done." for handle in handles)


def in_a_row() -> None:
    with Agent(Follower(), "coding", **OPTIONS) as agent:
        assert all(agent.run_sync("Look.").text == "Done." for _ in range(AGENTS))


def seconds(work: Callable[[], None]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


class Seen:
    """Hears the parent's calls of `wait`: their durations, and that the last one has begun."""

    def __init__(self) -> None:
        self.durations: list[float] = []
        self.is_waiting = asyncio.Event()

    def on_event(self, event: object) -> None:
        """Take note of one event."""
        if isinstance(event, ToolCallCompleted) and event.name == "wait":
            self.durations.append(event.duration)
        elif isinstance(event, ToolCallRunning) and len(self.durations) == WAITS:
            self.is_waiting.set()


async def limits(folder: str) -> tuple[list[float], float]:
    """Return the seconds by which `wait` is late, and those from an interrupt to the last end."""
    spawn = Call("spawn_agent", {"task": "Work.", "agent_type": "worker"})
    short, long = (Call("wait", {"timeout_ms": ms}) for ms in (int(WAIT * 1000), 3_600_000))
    burn = Call("shell", {"command": ["bash", "-c", "touch here-$$; while :; do :; done"]})
    model, seen = Follower([burn], [[spawn] * AGENTS, *[short] * WAITS, long]), Seen()
    options = {**OPTIONS, "cwd": folder, "sandbox": "danger-full-access", "hooks": [seen]}
    with Agent(model, "coding", **options) as agent:
        turn = asyncio.create_task(agent.run("Go."))
        await seen.is_waiting.wait()
        await asyncio.to_thread(until, lambda: len(pids(folder)) == AGENTS)
        began = time.perf_counter()
        turn.cancel()
        with suppress(asyncio.CancelledError):
            await turn
        agent.session.engine.spawn(_ended(agent)).result()
        await asyncio.to_thread(until, lambda: not any(map(os.path.exists, pids(folder))))
        return [each - WAIT for each in seen.durations], time.perf_counter() - began


def pids(folder: str) -> list[str]:
    """Return the places of the processes that have begun in a folder."""
    return [f"/proc/{path.name[5:]}" for path in Path(folder).glob("here-*")]


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


async def _ended(agent: Agent) -> None:
    await asyncio.wait([child.ended for child in agent.sub_agents.agents.values()])


def print_limits() -> None:
    late, ends = [], []
    for _ in range(INTERRUPTS):
        with tempfile.TemporaryDirectory() as folder:
            waits, end = asyncio.run(limits(folder))
        late, ends = [*late, *waits], [*ends, end]
    for what, times in (("wait is late by", late), ("from an interrupt to the last end", ends)):
        print(f"{what}: median {median(times) * 1000:.0f} ms, worst {max(times) * 1000:.0f} ms")


if __name__ == "__main__":
    beside(), in_a_row()  # imports and caches
    rounds = [(seconds(beside), seconds(in_a_row)) for _ in range(ROUNDS)]
    best = [min(times) for times in zip(*rounds, strict=True)]
    print(
        f"{AGENTS} x {REQUESTS} requests: beside each other {best[0] * 1000:.0f} ms CPU, ", end=""
    )
    print(f"in a row {best[1] * 1000:.0f} ms; ratio {best[0] / best[1]:.2f}")
    print_limits()
