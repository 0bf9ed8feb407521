"""inspect-ai: `Model.generate_loop` (`react` runs only inside of an evaluation)."""

# ruff: noqa: PLC0415 - a process imports only what it measures

import asyncio
import functools
import inspect
import json
import os

os.environ["INSPECT_DISPLAY"] = "none"
IMPORT = (
    "from inspect_ai.agent import react, run; from inspect_ai.model import get_model; "
    "from inspect_ai.tool import tool; import openai"
)
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}


def make_tool(function):
    """Make a tool, which must be async; a blocking function runs on a thread."""
    from inspect_ai.tool import ToolDef

    @functools.wraps(function)
    async def direct(**fields):
        return function(**fields)

    @functools.wraps(function)
    async def threaded(**fields):
        return await asyncio.to_thread(function, **fields)

    if inspect.iscoroutinefunction(function):
        chosen = function
    else:
        chosen = threaded if function.__name__ == "nap" else direct
    return ToolDef(chosen, name=function.__name__).as_tool()


def connect(wire, base_url, functions, turns):
    from inspect_ai.model import GenerateConfig, get_model

    model = get_model(
        "openai/gpt-4o",
        base_url=base_url,
        api_key="x",
        responses_api=wire == "responses",
        streaming=True,
        memoize=False,
    )
    tools = [make_tool(function) for function in functions]

    async def see(_event):
        pass

    async def run():
        whole = GenerateConfig(max_tool_output=100_000)  # it cuts at 16 KB otherwise
        _, output = await model.generate_loop("go", tools=tools, config=whole, on_stream=see)
        return output.completion

    return run


def dispatcher(function, text):
    from inspect_ai.model import ChatMessageAssistant, execute_tools
    from inspect_ai.tool import ToolCall

    tools = [make_tool(function)]

    async def once():
        call = ToolCall(id="call_1", function=function.__name__, arguments=json.loads(text))
        asked = [ChatMessageAssistant(content="", tool_calls=[call])]
        return (await execute_tools(asked, tools)).messages[0].text

    return once
