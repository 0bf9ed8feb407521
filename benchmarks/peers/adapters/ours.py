"""agent-magics with plain `@tool` functions, which run on the thread that waits."""

# ruff: noqa: PLC0415 - a process imports only what it measures

import functools

IMPORT = "from agent_magics import Agent, tool"
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}
MARKS: dict[str, dict] = {"nap": {"parallel": True}, "nap_async": {"parallel": True}}
ARGUMENTS = '{"path": "a", "start": 1, "ratio": 0.5, "flags": [], "mode": "read"}'
WINDOW = 10_000_000  # tokens: nothing is pruned, so that each turn carries what the others carry
LONGEST = 100_000  # characters: an output of 50 KB is to travel whole


def decorated(function, **marks):
    from agent_magics import tool

    return tool(**(MARKS.get(function.__name__) or marks))(function)


def connect(wire, base_url, functions, turns, **marks):
    from agent_magics import Agent

    agent = Agent(
        model="gpt-4o",
        tools=[decorated(function, **marks) for function in functions],
        base_url=base_url,
        api_key="x",
        wire_api=wire,
        approval="never",
        max_turns=turns + 5,
        output_budget=LONGEST,
        context_window=WINDOW,
    )

    async def run():
        result = await agent.run("go")
        if result.status != "completed":
            raise SystemExit(f"the run has {result.status}: {result.error}")
        return result.text

    return run


def make_tool(function):
    """Build schema, handler and validator, the last one by preparing a call."""
    from agent_magics.dispatch.handlers.function import FunctionToolHandler
    from agent_magics.protocol.tools import FunctionPayload, ToolCall

    made = decorated(function)
    made.spec.parameters  # noqa: B018 - derived when it is looked at
    handler = FunctionToolHandler(made)
    call = ToolCall("call_1", function.__name__, FunctionPayload(ARGUMENTS))
    handler.prepare(call, context())
    return handler


@functools.cache
def context():
    """Return a call's context, shared by all calls, so that making it is not measured."""
    from measures.dispatching import five, machinery

    from agent_magics.dispatch.context import ToolContext

    _, turn = machinery("inline", lambda kind, **fields: None, five)
    return ToolContext(turn, "call_1", "five")


def dispatcher(function, text):
    """Return a call through the router without HTTP and events, as in measures/dispatching.py."""
    from measures.dispatching import dispatch

    return dispatch("inline", function, text)
