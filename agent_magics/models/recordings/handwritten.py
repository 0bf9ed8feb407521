"""Expands short handwritten answers into a provider's event stream."""

import json
from collections.abc import Iterable

from agent_magics.models.wires.responses.items import item_json
from agent_magics.models.wires.sse import reply_events
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    JsonMapping,
    Reasoning,
)


def read_reply(reply: object) -> list[Item]:
    """Parse a handwritten answer into items; calls are numbered call_1, call_2, …

    Args:
        reply: a list of {"text"}, {"reasoning"}, {"call", "arguments"} and {"custom", "input"}.

    Raises:
        ValueError: it has another form; the message says how, without a full stop.
    """
    if not isinstance(reply, list) or not all(isinstance(piece, dict) for piece in reply):
        raise ValueError('"reply" must be a list of objects')
    return [_read_piece(f"call_{index}", piece) for index, piece in enumerate(reply, 1)]


def _read_piece(call_id: str, piece: JsonMapping) -> Item:
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


def arguments_text(arguments: JsonMapping | str) -> str:
    """Return arguments as JSON text.

    Raises:
        TypeError, ValueError, RecursionError: they are neither text nor a JSON object.
    """
    if isinstance(arguments, str):
        return arguments
    return json.dumps({**arguments}, ensure_ascii=False, allow_nan=False)


def write_reply(items: Iterable[Item]) -> bytes:
    """Return `items` as the SSE bytes of one complete answer, with one delta per word."""
    outputs = [{**item_json(item), "status": "completed"} for item in items]
    return b"".join(reply_events(outputs))
