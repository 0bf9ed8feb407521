"""Measures a conversation of 10,000 turns: what a late turn costs, what it keeps, its resumption.

Each turn is a prompt, a call and an answer of a model in this process, with events and the record.
CPU of all threads a turn in milliseconds, and resident memory in MB, both by thousands of turns;
then `Agent.resume` in this process, without its own start-up.
"""

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil

from agent_magics import Agent, tool
from agent_magics.models.base import ItemDone, ModelEvent, ModelRequest, ResponseDone
from agent_magics.protocol.items import AssistantMessage, FunctionCall, ToolCallOutput, Usage

STEP = 1000
TIMES = 3


@tool
def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


class Adder:
    """A model that calls `add` for each prompt, says what came out, and keeps nothing."""

    source = "script"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Answer the last item of the request's history."""
        items = request.history.items
        if isinstance(items[-1], ToolCallOutput):
            yield ItemDone(AssistantMessage(f"That makes {items[-1].output}."))
        else:
            arguments = json.dumps({"a": len(items), "b": 1})
            yield ItemDone(FunctionCall(f"call_{len(items)}", "add", arguments))
        yield ResponseDone(Usage(input_tokens=1000, output_tokens=10))

    async def close(self) -> None:
        """Do nothing: there is no connection."""


def converse(turns: int) -> tuple[str, list[float], list[float]]:
    """Have a conversation; return its id, and CPU and memory by thousands of turns."""
    cpu, memory = [], []
    process = psutil.Process()
    with Agent(Adder(), [add], approval="never") as agent:
        agent.run_sync("Add one to 0.")
        for first in range(1, turns, STEP):
            numbers = range(first, min(first + STEP, turns))
            began = time.process_time()
            for number in numbers:
                done = agent.run_sync(f"Add one to {number}.")
                assert done.status == "completed", done.error
            cpu.append((time.process_time() - began) / len(numbers) * 1e3)
            gc.collect()
            memory.append(process.memory_info().rss / 1e6)
        return agent.conversation_id, cpu, memory


def main() -> None:
    """Measure, and print the figures."""
    turns = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = str(Path(folder, "state"))
        os.chdir(folder)
        conversation, cpu, memory = converse(turns)
        took = []
        for _ in range(TIMES):
            began = time.process_time()
            Agent.resume(conversation).close()
            took.append(time.process_time() - began)
    figures = {
        "first_ms": cpu[0],
        "last_ms": cpu[-1],
        "growth": cpu[-1] / cpu[0],
        "cpu_ms": cpu,
        "memory_mb": memory,
        "a_thousand_mb": (memory[-1] - memory[0]) / (len(memory) - 1),
        "resume_cpu_s": min(took),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
