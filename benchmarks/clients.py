"""Builds and runs the clients that are compared, by name.

``floor`` is `floor_content.Floor`; ``main``, ``inline``, ``pool`` and ``async`` are an `Agent`
whose tools are plain ``@tool`` functions (run on the thread that waits), ``inline=True`` ones (run
on the engine's loop), ``parallel=True`` ones (run on its threads), and coroutine functions.
"""

import asyncio
import functools
import json
import urllib.request
from collections.abc import Callable

MARKS = {
    "main": {},
    "inline": {"inline": True},
    "pool": {"parallel": True},
    "async": {"parallel": True},
}


# As long as real ones: each event is searched for it, but for texts that are shorter.
KEY = "sk-proj-" + "0aB1cD2eF3" * 15


def connect(
    subject: str, server: str, scenario: str, functions: list[Callable]
) -> Callable[[], str]:
    """Return a function that runs `scenario` once on a new client and returns the final text."""
    base_url = f"{server}/s/{scenario}/v1"
    # Each process imports only the client that it measures.
    if subject == "floor":
        from floor_content import Floor  # noqa: PLC0415

        pooled = any(function.__name__ == "nap" for function in functions)
        floor = Floor(base_url, functions, pooled=pooled)
        return lambda: asyncio.run(floor.run("go"))
    from agent_magics import Agent, tool  # noqa: PLC0415

    if subject == "async":
        functions = [awaitable(function) for function in functions]
    agent = Agent(
        model="gpt-4o",
        tools=[tool(**MARKS[subject])(function) for function in functions],
        base_url=base_url,
        api_key=KEY,
        approval="never",
        max_turns=1000,
    )

    def run() -> str:
        result = agent.run_sync("go")
        if result.status != "completed":
            raise SystemExit(f"the run has {result.status}: {result.error}")
        return result.text

    return run


def awaitable(function: Callable) -> Callable:
    """Return a coroutine function that calls `function`."""

    @functools.wraps(function)
    async def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def log(server: str, scenario: str) -> list[list[float]]:
    """Return and clear the server's log of `scenario`; also makes the server write its answers."""
    with urllib.request.urlopen(f"{server}/log/{scenario}") as answer:
        return json.load(answer)
