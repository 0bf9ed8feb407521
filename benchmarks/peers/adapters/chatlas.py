"""chatlas: `stream_async`."""

# ruff: noqa: PLC0415 - a process imports only what it measures

import json

IMPORT = "from chatlas import ChatOpenAI"
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}


def make_tool(function):
    from chatlas._tools import Tool

    return Tool.from_func(function)


def connect(wire, base_url, functions, turns):
    from chatlas import ChatOpenAI, ChatOpenAICompletions

    door = ChatOpenAI if wire == "responses" else ChatOpenAICompletions
    chat = door(model="gpt-4o", base_url=base_url, api_key="x")
    for function in functions:
        chat.register_tool(function)

    async def run():
        pieces = [piece async for piece in await chat.stream_async("go", echo="none")]
        return "".join(pieces).strip()

    return run


def dispatcher(function, text):
    """Call the function without a check of arguments: there is no public way to make one call."""
    from chatlas import ChatOpenAI
    from chatlas._content import ContentToolRequest

    chat = ChatOpenAI(model="gpt-4o", base_url="http://127.0.0.1:9/v1", api_key="x")
    chat.register_tool(function)

    def once():
        request = ContentToolRequest(
            id="call_1", name=function.__name__, arguments=json.loads(text)
        )
        return str(next(iter(chat._invoke_tool(request))).get_model_value())

    return once
