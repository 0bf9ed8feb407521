"""Compares the CPU time of four sub-agents beside each other with that of one agent in a row.

`python benchmarks/delegation.py` prints the ratio; both make the same 40 requests with 36 calls to
a model that follows a script. Times of one machine at one moment mean little, so only the ratio of
the best of several rounds is printed.
"""

import gc
import time
from collections.abc import Callable

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.models.base import ModelRequest

AGENTS, REQUESTS, ROUNDS = 4, 10, 40
SCRIPT = [*[Call("list_dir", {"path": "."})] * (REQUESTS - 1), "Done."]
OPTIONS = {
    "approval": "never",
    "loops": dict.fromkeys(("identical", "near_identical", "periods", "changing"), 1000),
}


class Follower:
    """Gives every conversation the same script."""

    source, name = "script", "gpt-5.5"

    def __init__(self) -> None:
        self._models: dict[str, ScriptedModel] = {}

    def stream(self, request: ModelRequest):
        """Send the next answer of the conversation."""
        model = self._models.setdefault(request.conversation, ScriptedModel(SCRIPT * AGENTS))
        return model.stream(request)

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


if __name__ == "__main__":
    beside(), in_a_row()  # imports and caches
    rounds = [(seconds(beside), seconds(in_a_row)) for _ in range(ROUNDS)]
    best = [min(times) for times in zip(*rounds, strict=True)]
    print(
        f"{AGENTS} x {REQUESTS} requests: beside each other {best[0] * 1000:.0f} ms CPU, ", end=""
    )
    print(f"in a row {best[1] * 1000:.0f} ms; ratio {best[0] / best[1]:.2f}")
