"""The loop that a person writes first: the ``openai`` SDK as its documentation shows it."""

# ruff: noqa: PLC0415 - a process imports only what it measures

import asyncio
import inspect
import json
from concurrent.futures import ThreadPoolExecutor

IMPORT = "import openai; openai.AsyncOpenAI"
WIRES = ("responses", "chat")
CANNOT: dict[str, str] = {}


def make_tool(function):
    from pydantic import TypeAdapter, validate_call

    return validate_call(function), TypeAdapter(function).json_schema()


def connect(wire, base_url, functions, turns):
    import openai

    client = openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0)
    made = {function.__name__: make_tool(function) for function in functions}
    tools = {name: checked for name, (checked, _) in made.items()}
    schemas = {name: schema for name, (_, schema) in made.items()}
    pool = ThreadPoolExecutor(32) if "nap" in tools else None

    async def call(name, arguments):
        fields = json.loads(arguments)
        if pool is not None:
            loop = asyncio.get_running_loop()
            return str(await loop.run_in_executor(pool, lambda: tools[name](**fields)))
        value = tools[name](**fields)
        return str(await value if inspect.isawaitable(value) else value)

    loop = over_responses if wire == "responses" else over_chat

    async def run():
        return await loop(client, schemas, call)

    return run


async def over_responses(client, schemas, call):
    tools = [
        {"type": "function", "name": name, "parameters": schema, "strict": False}
        for name, schema in schemas.items()
    ]
    history, text = [{"role": "user", "content": "go"}], []
    while True:
        calls = []
        async for event in await client.responses.create(
            model="gpt-4o", input=history, tools=tools, stream=True
        ):
            if event.type == "response.output_text.delta":
                text.append(event.delta)
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                calls.append(event.item)
        if not calls:
            return "".join(text)
        keys = ("type", "id", "call_id", "name", "arguments")
        history += [{key: getattr(item, key) for key in keys} for item in calls]
        outputs = await asyncio.gather(*[call(item.name, item.arguments) for item in calls])
        history += [
            {"type": "function_call_output", "call_id": item.call_id, "output": output}
            for item, output in zip(calls, outputs, strict=True)
        ]


async def over_chat(client, schemas, call):
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema}}
        for name, schema in schemas.items()
    ]
    history, text = [{"role": "user", "content": "go"}], []
    while True:
        calls = {}
        async for chunk in await client.chat.completions.create(
            model="gpt-4o", messages=history, tools=tools, stream=True
        ):
            if not chunk.choices:
                continue
            delta = chunk.choices[0].delta
            if delta.content:
                text.append(delta.content)
            for part in delta.tool_calls or ():
                function = {"name": part.function.name, "arguments": ""}
                made = {"id": part.id, "type": "function", "function": function}
                made = calls.setdefault(part.index, made)
                made["function"]["arguments"] += part.function.arguments or ""
        if not calls:
            return "".join(text)
        made = list(calls.values())
        history.append({"role": "assistant", "content": None, "tool_calls": made})
        outputs = await asyncio.gather(*[call(**one["function"]) for one in made])
        history += [
            {"role": "tool", "tool_call_id": one["id"], "content": output}
            for one, output in zip(made, outputs, strict=True)
        ]


def dispatcher(function, text):
    checked, _ = make_tool(function)
    return lambda: json.dumps(checked(**json.loads(text)))
