"""Measures one call of a tool with five typed fields: JSON text in, text out, no HTTP.

``floor`` is pydantic alone: validate the JSON, call, write the result. ``inline``, ``async`` and
``pool`` stop at `ToolCallRuntime.dispatch`; ``events`` adds the events of the call and the record
on disk; ``call`` is the whole of `Agent.call`, with its turn and its way to the engine's thread and
back. The figure is the best batch: CPU time of all threads per call, in microseconds.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Literal

from clients import KEY, MARKS, awaitable

BATCH = 40  # short ones, and many: then some run undisturbed on a busy machine
BATCHES = 100
ARGUMENTS = {
    "path": "/tmp/a/b.txt",
    "start": 12,
    "ratio": 0.5,
    "flags": ["x", "y"],
    "mode": "read",
}
TEXT = json.dumps(ARGUMENTS)


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


def floor() -> Callable[[], Awaitable[str]]:
    """Return a call through pydantic alone."""
    from pydantic import TypeAdapter  # noqa: PLC0415
    from pydantic_core import to_json  # noqa: PLC0415

    validate = TypeAdapter(five).validator.validate_json

    async def once() -> str:
        return to_json(validate(TEXT)).decode()

    return once


def machinery(subject: str, emit: Callable, function: Callable = five):
    """Return the runtime that runs calls of `function`, and the context of a turn."""
    from agent_magics import tool  # noqa: PLC0415
    from agent_magics.approval.requirement import ApprovalStore  # noqa: PLC0415
    from agent_magics.dispatch.context import TurnContext  # noqa: PLC0415
    from agent_magics.dispatch.handlers.function import FunctionToolHandler  # noqa: PLC0415
    from agent_magics.dispatch.pipeline import ToolCallRuntime  # noqa: PLC0415
    from agent_magics.dispatch.registry import ToolRegistryBuilder  # noqa: PLC0415
    from agent_magics.dispatch.router import ToolRouter  # noqa: PLC0415
    from agent_magics.dispatch.stages.orchestrator import ToolOrchestrator  # noqa: PLC0415
    from agent_magics.protocol.config import ApprovalPolicy, RunConfig  # noqa: PLC0415

    function = awaitable(function) if subject == "async" else function
    function = tool(**MARKS.get(subject, MARKS["inline"]))(function)
    builder = ToolRegistryBuilder()
    builder.push_spec_with_parallel_support(function.spec, False)
    builder.register_handler(function.__name__, FunctionToolHandler(function))
    _, registry = builder.build()
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="bench",
        config=RunConfig(cwd=Path.cwd(), approval=ApprovalPolicy.NEVER),
        env={},
        emit=emit,
        ask=None,
        call=None,
        validate_path=None,
        messages=tuple,
        main_thread=None,
    )
    runtime = ToolCallRuntime(ToolRouter(registry), turn, ToolOrchestrator(ApprovalStore()))
    return runtime, turn


def dispatch(
    subject: str, function: Callable = five, text: str = TEXT
) -> Callable[[], Awaitable[str]]:
    """Return a call through the stages alone."""
    runtime, turn = machinery(subject, lambda kind, **fields: None, function)
    from agent_magics.dispatch.call import CallInProgress  # noqa: PLC0415
    from agent_magics.protocol.items import FunctionCall  # noqa: PLC0415

    name = function.__name__
    item = FunctionCall("call_1", name, text)

    async def once() -> str:
        call = CallInProgress(runtime.router.build_tool_call(item), turn)
        output = await runtime.dispatch(call)
        return output.text

    return once


def with_events(folder: Path) -> Callable[[], Awaitable[str]]:
    """Return a call with its events and the record on disk."""
    from agent_magics.engine.session import Session  # noqa: PLC0415
    from agent_magics.engine.thread import shared_engine  # noqa: PLC0415
    from agent_magics.protocol.items import FunctionCall  # noqa: PLC0415

    session = Session(shared_engine(), "bench", folder)
    runtime, _ = machinery("inline", emit=partial(session.outbox.emit, "t"))
    item = FunctionCall("call_1", "five", TEXT)

    async def once() -> str:
        output = await runtime.start(runtime.router.build_tool_call(item))
        return output.text

    return once


def whole_call() -> Callable[[], Awaitable[str]]:
    """Return a call through `Agent.call`."""
    from agent_magics import Agent, tool  # noqa: PLC0415

    agent = Agent(model="gpt-4o", tools=[tool(inline=True)(five)], api_key=KEY, approval="never")

    async def once() -> str:
        return (await agent.call("five", ARGUMENTS)).text

    return once


async def measure(once: Callable[[], Awaitable[str]], size: int) -> dict[str, float]:
    """Run batches and return the best; the first is a warm-up and is discarded."""
    assert json.loads(await once()) == ARGUMENTS, await once()
    cpu, wall = [], []
    for _ in range(BATCHES + 1):
        began, began_cpu = time.perf_counter(), time.process_time()
        for _ in range(size):
            await once()
        cpu.append((time.process_time() - began_cpu) / size * 1e6)
        wall.append((time.perf_counter() - began) / size * 1e6)
    return {"cpu_us": min(cpu[1:]), "wall_us": min(wall[1:])}


def on_the_engine(folder: Path) -> dict[str, float]:
    """Measure with events on the engine's own loop, where calls run."""
    from agent_magics.engine.thread import shared_engine  # noqa: PLC0415

    return shared_engine().spawn(measure(with_events(folder), BATCH)).result()


def main() -> None:
    """Measure one way; print microseconds per call."""
    subject = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        if subject == "events":
            print(json.dumps(on_the_engine(Path(folder))))
            return
        if subject == "floor":
            once = floor()
        elif subject == "call":
            once = whole_call()
        else:
            once = dispatch(subject)
        print(json.dumps(asyncio.run(measure(once, BATCH))))


if __name__ == "__main__":
    main()
