"""Measures tools of MCP servers: calls against the SDK's own client, naps, starts, tokens.

Subjects: ``floor`` is the SDK's client; ``call`` is `Agent.call`; ``naps`` are 16 calls in one
answer; ``starting`` is a turn while five servers start, one of which hangs; ``deferred`` is what
200 tools add to the first request.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

SERVER = Path(__file__).resolve().parents[1] / "mcp_server.py"
CALLS, BATCHES = 50, 8
NAPS, TOOLS = 16, 200
TURNS = 7
HANGING = "import time; time.sleep(1000)"


def entry(*words: str, **more: Any) -> dict[str, Any]:
    command = {"command": sys.executable, "args": [str(SERVER), *words]}
    return {**command, "startup_timeout_sec": 120, **more}


async def floor() -> dict[str, float]:
    """Measure calls one after the other with the SDK's client: ms, the median batch."""
    from mcp.client.client import Client  # noqa: PLC0415 - only this subject's own
    from mcp.client.stdio import StdioServerParameters, stdio_client  # noqa: PLC0415

    transport = stdio_client(StdioServerParameters(command=sys.executable, args=[str(SERVER)]))
    async with Client(transport) as client:
        return await batches(lambda: client.call_tool("echo", {"text": "hello"}))


async def call() -> dict[str, float]:
    """Measure the same through `Agent.call`: checked, judged, recorded, with its events."""
    from agent_magics import Agent  # noqa: PLC0415

    with Agent(tools=[], mcp_servers={"measured": entry()}) as agent:
        await started(agent)
        return await batches(lambda: agent.call("mcp__measured__echo", {"text": "hello"}))


async def batches(make: Callable[[], Any]) -> dict[str, float]:
    for _ in range(CALLS):
        await make()
    taken = []
    for _ in range(BATCHES):
        began = time.perf_counter()
        for _ in range(CALLS):
            await make()
        taken.append((time.perf_counter() - began) / CALLS * 1e3)
    return {"call_ms": median(taken), "call_best_ms": min(taken)}


async def naps() -> dict[str, float]:
    """Measure 16 calls of 50 ms in one answer: from the answer to the next request, ms."""
    from agent_magics import Agent, Call, ScriptedModel  # noqa: PLC0415

    asked: list[float] = []

    def answer(_: Any) -> Any:
        asked.append(time.perf_counter())
        if len(asked) % 2:
            return [Call("mcp__measured__nap", {"i": i}) for i in range(NAPS)]
        return "Rested."

    servers = {"measured": entry(supports_parallel_tool_calls=True)}
    with Agent(ScriptedModel([answer] * 8), tools=[], mcp_servers=servers) as agent:
        await started(agent)
        for _ in range(4):
            result = await agent.run("Rest.")
            assert result.text == "Rested.", result
            assert [each.success for each in result.calls] == [True] * NAPS
    gaps = [(after - before) * 1e3 for before, after in zip(asked[::2], asked[1::2], strict=True)]
    return {"gap_ms": median(gaps[1:])}


async def starting() -> dict[str, float]:
    """Measure how many ms longer a turn takes that begins with five starting servers.

    The first agent with servers also imports the SDK, beside its turn.
    """
    from agent_magics import Agent, ScriptedModel  # noqa: PLC0415

    async def turn(servers: dict[str, Any] | None) -> float:
        with Agent(ScriptedModel(["Hello."]), tools=[], mcp_servers=servers) as agent:
            began = time.perf_counter()
            result = await agent.run("Hi.")
            taken = (time.perf_counter() - began) * 1e3
            assert result.text == "Hello.", result
            return taken

    hanging = {"command": sys.executable, "args": ["-c", HANGING]}
    servers = {f"measured{number}": entry() for number in range(4)} | {"hanging": hanging}
    await turn(None)
    alone = [await turn(None) for _ in range(TURNS)]
    first = await turn(servers)
    later = [await turn(servers) for _ in range(TURNS)]
    without = median(alone)
    return {"first_ms": first - without, "delay_ms": median(later) - without, "alone_ms": without}


async def deferred() -> dict[str, float]:
    """Measure what 200 tools of a server add to a request, at four characters a token."""
    from agent_magics import Agent, ScriptedModel  # noqa: PLC0415
    from agent_magics.models.wires.responses.items import encode_tools  # noqa: PLC0415
    from agent_magics.protocol.codec import to_json  # noqa: PLC0415

    async def size(servers: dict[str, Any] | None) -> int:
        model = ScriptedModel(["Hello."] * TURNS)
        with Agent(model, tools=["coding"], mcp_servers=servers) as agent:
            if servers:
                await started(agent)
            for _ in range(TURNS):  # what a server offers is read beside the turns
                await agent.run("Hi.")
                request = model.requests[-1]
                if not servers or "tool_search" in [each.spec.name for each in request.tools]:
                    break
                await asyncio.sleep(0.5)
            else:
                raise SystemExit("the tools did not join")
            notes = [item for item in request.history.items if getattr(item, "role", "") != "user"]
            items = [to_json(item) for item in notes if type(item).__name__ == "UserMessage"]
            return len(encode_tools(request.tools)) + len(json.dumps(items))

    more = await size({"measured": entry(str(TOOLS))}) - await size(None)
    return {"tokens": more / 4}


async def started(agent: Any) -> None:
    """Wait until the agent's servers are ready."""
    agent.mcp.start()
    listed = agent.session.engine.spawn(agent.mcp.list_all_tools())
    assert await asyncio.wrap_future(listed)


SUBJECTS = {
    "floor": floor,
    "call": call,
    "naps": naps,
    "starting": starting,
    "deferred": deferred,
}


print(json.dumps(asyncio.run(SUBJECTS[sys.argv[1]]())))
