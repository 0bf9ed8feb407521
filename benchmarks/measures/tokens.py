"""Measures what a model must read: the first request of each set of tools, and results of tools.

A token is estimated as four bytes of the text that is sent, which is near the truth for English and
code (`agent_magics.engine.context.tokens`); no tokenizer is needed.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

BYTES_A_TOKEN = 4


def plain_tools() -> list[str]:
    """Return the tools of the set "coding" without those that were added to it later."""
    from agent_magics.tools import AGENTS, MEMORY, STRUCTURE, TOOL_SETS  # noqa: PLC0415

    added = {*AGENTS, *MEMORY, *STRUCTURE, "request_user_input"}
    return [name for name in TOOL_SETS["coding"] if name not in added]


def first_request(tools: Callable[[], Sequence[str]]) -> dict[str, float]:
    """Measure the instructions and the tools of a first request in a folder with code."""
    from agent_magics import Agent, ScriptedModel  # noqa: PLC0415
    from agent_magics.models.wires.responses.items import encode_tools  # noqa: PLC0415

    model = ScriptedModel(["Hello."])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "code.py").write_text("x = 1\n", encoding="utf-8")
        with Agent(model, tools(), cwd=folder, approval="never") as agent:
            agent.run_sync("Hi.")
    request = model.requests[0]
    each = {spec.spec.name: len(encode_tools((spec,))) for spec in request.tools}
    print(json.dumps(each), file=sys.stderr)
    size = len(request.instructions.encode()) + len(encode_tools(request.tools))
    return {"tokens": size / BYTES_A_TOKEN}


def values() -> dict[str, float]:
    """Measure the longest text that a model reads of a large value which a tool returned."""
    from agent_magics import Agent, ScriptedModel, tool  # noqa: PLC0415

    made: dict[str, Callable[[], Any]] = {
        "list of 3 million": lambda: list(range(3_000_000)),
        "list of 1,000": lambda: list(range(1000)),
        "rows": lambda: [{"id": n, "name": f"row {n}", "tags": ["a", "b"]} for n in range(300)],
        "dict": lambda: {f"key {n}": n for n in range(1000)},
        "set": lambda: set(range(4000)),
        "nested": lambda: [[[n] * 9] * 9 for n in range(99)],
        "bytes": lambda: bytes(20_000),
    }

    @tool
    def make(what: str) -> object:
        """Make a value."""
        return made[what]()

    with Agent(ScriptedModel([]), tools=[make], approval="never") as agent:
        texts = {what: agent.call_sync("make", {"what": what}).text for what in made}
    print(json.dumps({what: len(text) for what, text in texts.items()}), file=sys.stderr)
    assert all("@r" in text for text in texts.values()), texts
    return {"tokens": max(len(text.encode()) for text in texts.values()) / BYTES_A_TOKEN}


SUBJECTS: dict[str, Callable[[], dict[str, float]]] = {
    "plain": partial(first_request, plain_tools),
    "first": partial(first_request, lambda: ["coding"]),
    "python": partial(first_request, lambda: ["data"]),
    "values": values,
}

if __name__ == "__main__":
    print(json.dumps(SUBJECTS[sys.argv[1]]()))
