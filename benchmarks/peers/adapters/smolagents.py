"""smolagents: `ToolCallingAgent` with `stream_outputs`.

An agent that streams draws its terminal anew at every delta, so the row of deltas measures the
model's own `generate_stream`, a lower bound.
"""

# ruff: noqa: PLC0415 - a process imports only what it measures

import json

IMPORT = "from smolagents import OpenAIModel, ToolCallingAgent, tool"
WIRES = ("chat",)
DIALECT = ".steps"
CANNOT = {"parallel-async": "no async tools"}


def make_tool(function):
    from smolagents import tool

    return tool(function)


def connect(wire, base_url, functions, turns):
    from smolagents import LogLevel, OpenAIModel, ToolCallingAgent
    from smolagents.models import ChatMessage

    model = OpenAIModel(
        model_id="gpt-4o", api_base=base_url, api_key="x", client_kwargs={"max_retries": 0}
    )
    if not turns:
        asked = [ChatMessage(role="user", content="go")]
        return lambda: "".join(piece.content or "" for piece in model.generate_stream(asked))
    agent = ToolCallingAgent(
        tools=[make_tool(function) for function in functions],
        model=model,
        stream_outputs=True,
        verbosity_level=LogLevel.OFF,
        max_steps=turns + 5,
    )
    return lambda: agent.run("go")


def dispatcher(function, text):
    from smolagents import OpenAIModel, ToolCallingAgent

    model = OpenAIModel(model_id="gpt-4o", api_base="http://127.0.0.1:9/v1", api_key="x")
    agent = ToolCallingAgent(tools=[make_tool(function)], model=model, verbosity_level=-1)
    return lambda: str(agent.execute_tool_call(function.__name__, json.loads(text)))
