"""A provider for LiteLLM's proxy that needs no network: two calls of `add`, then their results.

It hands LiteLLM plain pieces (`GenericStreamingChunk`); what a client sees of them on either wire,
LiteLLM writes.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

from litellm import CustomLLM
from litellm.llms.custom_llm import CustomLLMError

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
CALLS = (("call_one", {"a": 1, "b": 2}), ("call_two", {"a": 3, "b": 4}))


def piece(
    text: str = "", call: Any = None, finish: str = "", usage: dict[str, int] | None = None
) -> dict[str, Any]:
    """One piece of an answer."""
    return {
        "text": text,
        "tool_use": call,
        "is_finished": bool(finish),
        "finish_reason": finish,
        "usage": usage,
        "index": 0,
    }


def seen(messages: list[dict[str, Any]]) -> str:
    """Say what came in: the outputs of tools, or the person's parts and their kinds."""
    outputs = [str(each["content"]) for each in messages if each["role"] == "tool"]
    if outputs:
        return "The tools said " + " and ".join(outputs) + "."
    content = messages[-1]["content"]
    if isinstance(content, str):
        return f"You said {content}."
    return "I see " + ", ".join(part["type"] for part in content) + "."


class Mocked(CustomLLM):
    """Calls tools where it has some and has not heard of their results; else says what it saw."""

    async def astreaming(
        self, model: str, messages: list, optional_params: dict, **_: Any
    ) -> AsyncIterator[Any]:
        """Yield the answer's pieces."""
        if model == "broken":
            yield piece("And then")
            raise CustomLLMError(status_code=503, message="the mock broke")
        if model == "lister":
            tools = [tool.get("function", tool).get("name") for tool in optional_params["tools"]]
            yield piece("I have " + ", ".join(map(str, tools)) + ".", finish="stop", usage=USAGE)
            return
        if optional_params.get("tools") and messages[-1]["role"] != "tool":
            for index, (call_id, arguments) in enumerate(CALLS):
                function = {"name": "add", "arguments": json.dumps(arguments)}
                call = {"id": call_id, "type": "function", "function": function, "index": index}
                yield piece(call=call)
            yield piece(finish="tool_calls", usage=USAGE)
            return
        for word in seen(messages).split(" "):
            yield piece(word + " ")
        yield piece(finish="stop", usage=USAGE)


mocked = Mocked()
