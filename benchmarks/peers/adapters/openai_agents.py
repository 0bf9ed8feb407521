"""openai-agents: `Runner.run_streamed`."""

# ruff: noqa: PLC0415 - a process imports only what it measures

IMPORT = "from agents import Agent, Runner, function_tool"
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}


def make_tool(function):
    from agents import function_tool

    return function_tool(function)


def connect(wire, base_url, functions, turns):
    from agents import (
        Agent,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    door = OpenAIResponsesModel if wire == "responses" else OpenAIChatCompletionsModel
    client = AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
    model = door(model="gpt-4o", openai_client=client)
    tools = [make_tool(function) for function in functions]
    agent = Agent(name="bench", model=model, tools=tools)

    async def run():
        result = Runner.run_streamed(agent, "go", max_turns=turns + 5)
        async for _ in result.stream_events():
            pass
        return result.final_output

    return run


def dispatcher(function, text):
    from agents.tool_context import ToolContext

    tool = make_tool(function)
    fields = {"tool_name": tool.name, "tool_call_id": "call_1", "tool_arguments": text}
    context = ToolContext(context=None, **fields)

    async def once():
        return str(await tool.on_invoke_tool(context, text))

    return once
