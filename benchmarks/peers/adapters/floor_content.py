"""The floor by hand: the SDK's client, cached bytes posted, raw bytes read."""

# ruff: noqa: PLC0415 - a process imports only what it measures

import json

IMPORT = "import openai; openai.AsyncOpenAI"
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}


def connect(wire, base_url, functions, turns):
    from floor_content import ChatFloor, Floor

    pooled = any(function.__name__ == "nap" for function in functions)
    floor = (Floor if wire == "responses" else ChatFloor)(base_url, functions, pooled)

    async def run():
        return await floor.run("go")

    return run


def make_tool(function):
    from pydantic import TypeAdapter

    adapter = TypeAdapter(function)
    return adapter.validator, adapter.json_schema()


def dispatcher(function, text):
    from pydantic import TypeAdapter
    from pydantic_core import to_json

    validate = TypeAdapter(function).validator.validate_json
    assert json.loads(to_json(validate(text)))
    return lambda: to_json(validate(text)).decode()
