"""langgraph: LangChain's `create_agent`, streamed as messages."""

# ruff: noqa: PLC0415 - a process imports only what it measures

import json

IMPORT = (
    "from langchain.agents import create_agent; from langchain_openai import ChatOpenAI; "
    "from langchain_core.tools import tool"
)
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}
STEPS = 10  # of the graph for one turn; it stops at the limit otherwise


def make_tool(function):
    from langchain_core.tools import tool

    made = tool(function)
    made.tool_call_schema  # noqa: B018 - built when it is looked at
    return made


def connect(wire, base_url, functions, turns):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model="gpt-4o",
        base_url=base_url,
        api_key="x",
        use_responses_api=wire == "responses",
        streaming=True,
        max_retries=0,
    )
    agent = create_agent(model, tools=[make_tool(function) for function in functions])
    asked = {"messages": [{"role": "user", "content": "go"}]}
    settings = {"recursion_limit": STEPS * turns + 50}

    async def run():
        text = []
        async for message, _ in agent.astream(asked, settings, stream_mode="messages"):
            if message.type == "AIMessageChunk" and message.text:
                text.append(message.text)
        return "".join(text)

    return run


def dispatcher(function, text):
    made = make_tool(function)

    async def once():
        call = {"name": made.name, "args": json.loads(text), "id": "call_1", "type": "tool_call"}
        return (await made.ainvoke(call)).content

    return once
