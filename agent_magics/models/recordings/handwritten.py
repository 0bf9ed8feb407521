"""Answers written by hand (in recordings, scripts): a few words become a provider's stream."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agent_magics.models.responses_wire import item_json
from agent_magics.models.sse import reply_events
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    Reasoning,
)


def read_reply(reply: Any) -> list[Item]:
    """Return the items of an answer written by hand; calls are numbered call_1, call_2, …

    Args:
        reply: a list of {"text"}, {"reasoning"}, {"call", "arguments"} and {"custom", "input"}.

    Raises:
        ValueError: it is something else; the text says what, without a full stop.
    """
    if not isinstance(reply, list) or not all(isinstance(piece, dict) for piece in reply):
        raise ValueError('"reply" must be a list of objects')
    return [_read_piece(f"call_{index}", piece) for index, piece in enumerate(reply, 1)]


def _read_piece(call_id: str, piece: Mapping[str, Any]) -> Item:
    match piece:
        case {"text": str(text), **rest} if not rest:
            return AssistantMessage(text)
        case {"reasoning": str(text), **rest} if not rest:
            return Reasoning((text,))
        case {"call": str(name), "arguments": dict() | str() as arguments, **rest} if not rest:
            return FunctionCall(call_id, name, arguments_text(arguments))
        case {"custom": str(name), "input": str(text), **rest} if not rest:
            return CustomToolCall(call_id, name, text)
    shown = json.dumps(piece, ensure_ascii=False)[:80]
    raise ValueError(
        'a piece of "reply" must be {"text"}, {"reasoning"}, {"call", "arguments"} or '
        f'{{"custom", "input"}}, not {shown}'
    )


def arguments_text(arguments: Mapping[str, Any] | str) -> str:
    """Return arguments as a model writes them: JSON text."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False)


def write_reply(items: Iterable[Item]) -> bytes:
    """Return `items` as the SSE bytes of one whole answer, text in word-sized deltas."""
    outputs = [{**item_json(item), "status": "completed"} for item in items]
    return b"".join(reply_events(outputs))
