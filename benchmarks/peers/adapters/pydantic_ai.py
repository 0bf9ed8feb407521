"""pydantic-ai: `Agent.run_stream_events`."""

# ruff: noqa: PLC0415 - a process imports only what it measures

IMPORT = (
    "from pydantic_ai import Agent; from pydantic_ai.providers.openai import OpenAIProvider; "
    "from pydantic_ai.models.openai import OpenAIResponsesModel"
)
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}


def make_tool(function):
    from pydantic_ai import Tool

    return Tool(function)


def connect(wire, base_url, functions, turns):
    from openai import AsyncOpenAI
    from pydantic_ai import Agent, usage
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    door = OpenAIResponsesModel if wire == "responses" else OpenAIChatModel
    client = AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
    model = door("gpt-4o", provider=OpenAIProvider(openai_client=client))
    agent = Agent(model, tools=[make_tool(function) for function in functions])
    limits = usage.UsageLimits(request_limit=None)

    async def run():
        async with agent.run_stream_events("go", usage_limits=limits) as events:
            async for event in events:
                if event.event_kind == "agent_run_result":
                    text = event.result.output
        return text

    return run


def dispatcher(function, text):
    """Validator and call, without the manager around them: a lower bound."""
    from pydantic_core import to_json

    schema = make_tool(function).function_schema

    async def once():
        return to_json(await schema.call(schema.validator.validate_json(text), None)).decode()

    return once
