"""Removes personal data from a provider's recorded events.

Every event is kept in its place and its pieces, including those that this version does not read.
Ids, times and opaque values are removed; paths and keys are found even where the stream splits
them.
"""

import json
from collections.abc import Iterator
from typing import Any

from agent_magics.models.recordings.redaction import Hider
from agent_magics.models.wires.sse import SseDecoder, SseEvent
from agent_magics.protocol.items import JsonMapping, JsonObject, json_object

# Fields to remove: bound to an account, random, or padding.
OPAQUE = frozenset(
    (
        *("encrypted_content", "thought_signature", "obfuscation", "logprobs", "top_logprobs"),
        *("created", "created_at", "completed_at", "system_fingerprint", "user"),
        *("safety_identifier", "prompt_cache_key", "previous_response_id"),
    )
)
# The Responses API repeats the whole request in its first and last events; these fields are the
# answer.
RESPONSE_FIELDS = frozenset(
    ("object", "status", "error", "incomplete_details", "output", "usage", "service_tier")
)
# Fields that identify the text to which a delta belongs.
PLACES = ("type", "output_index", "item_id", "content_index", "summary_index")
# Fields of a call that a tool gets as they are, whatever the names in them; not split either.
FOR_TOOLS = frozenset(("arguments", "input", "action"))
# Fields of a chat delta that are not split.
WHOLE = frozenset(("id", "type", "role"))


def clean_sse(sse: bytes, hider: Hider) -> str:
    """Return an answer's SSE bytes, or JSON document, as text without personal data.

    An incomplete event at the end, which no client acts on, is left out. Undecodable bytes become
    surrogates, as with ``surrogateescape``.
    """
    if sse.lstrip().startswith(b"{"):
        document = _parse(sse)
        return _text(sse, hider) if document is None else _cleaned([document], hider)[0]
    decoder = SseDecoder()
    events = decoder.feed(sse)
    events += [event for event in decoder.close() if _parse(event[1]) is not None]
    return "".join(_clean_events(events, hider))


def sse_bytes(text: str) -> bytes:
    """Return the bytes for a text made by `clean_sse`; the inverse of its decoding."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # the text was edited by hand
        return text.encode("utf-8", "replace")


def _clean_events(events: list[SseEvent], hider: Hider) -> Iterator[str]:
    parsed = [_parse(data) for _, data in events]
    documents = _drop_repeated([fields for fields in parsed if fields is not None])
    cleaned = iter(_cleaned(documents, hider))
    kept = set(map(id, documents))
    for (name, data), fields in zip(events, parsed, strict=True):
        if fields is not None and id(fields) not in kept:
            continue
        text = _text(data, hider) if fields is None else next(cleaned)
        head = f"event: {_text(name, hider)}\n" if name else ""
        yield head + "".join(f"data: {line}\n" for line in text.split("\n")) + "\n"


def _drop_repeated(documents: list[JsonObject]) -> list[JsonObject]:
    """Remove deltas that came twice, which no client reads and which would split a path."""
    kept, last = [], -1
    for fields in documents:
        number = fields.get("sequence_number")
        if isinstance(number, int) and "delta" in fields:
            if number <= last:
                continue
            last = number
        kept.append(fields)
    return kept


def _parse(data: bytes) -> JsonObject | None:
    return json_object(data.decode("utf-8", "replace"))


def _text(data: bytes, hider: Hider) -> str:
    """Return data that is not JSON as redacted text, otherwise byte for byte."""
    return hider(data.decode("utf-8", "surrogateescape"))


def _cleaned(documents: list[JsonObject], hider: Hider) -> list[str]:
    """Return the events as redacted JSON."""
    names: dict[str, str] = {}
    for fields in documents:
        # A server that does not stream sends the response object at the top level.
        _drop_opaque(fields, names, "response" if fields.get("object") == "response" else "")
    spared = _hide_streamed(documents, hider)
    return [_dumped(hider.in_json(fields, spared)) for fields in documents]


def _dumped(fields: JsonMapping) -> str:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return json.dumps(fields, separators=(",", ":"))  # a lone surrogate stays escaped


def _drop_opaque(value: object, names: dict[str, str], within: str = "") -> None:
    """Remove opaque fields, and replace the ids of items by numbered ones."""
    if isinstance(value, list):
        for each in value:
            _drop_opaque(each, names, within)
    if not isinstance(value, dict):
        return
    for name, each in list(value.items()):
        is_dropped = name in OPAQUE or (within == "response" and name not in RESPONSE_FIELDS)
        if is_dropped or (name == "id" and "choices" in value):
            del value[name]
        elif name in ("id", "item_id") and isinstance(each, str) and each and _is_item(value):
            value[name] = names.setdefault(each, f"item_{len(names) + 1}")
        elif name not in FOR_TOOLS:
            _drop_opaque(each, names, name)


def _is_item(fields: JsonMapping) -> bool:
    """Tell whether an object's id identifies an item (Responses API), not a call (Chat
    Completions).
    """
    return "function" not in fields and "custom" not in fields


# -- texts that are split over events --------------------------------------------------------------


def _hide_streamed(documents: list[JsonObject], hider: Hider) -> set[tuple[int, Any]]:
    """Redact texts that are split over events; return the places of the pieces."""
    texts: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for fields in documents:
        for place, holder, name in _pieces_of(fields):
            texts.setdefault(place, []).append((holder, name))
    for pieces in texts.values():
        cleaned = hider.in_pieces([holder[name] for holder, name in pieces])
        for (holder, name), text in zip(pieces, cleaned, strict=True):
            holder[name] = text
    return {(id(holder), name) for pieces in texts.values() for holder, name in pieces}


def _pieces_of(fields: JsonObject) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield an event's pieces as (key of the text, container, name or index in the container)."""
    if "delta" in fields:
        place = tuple(str(fields.get(name)) for name in PLACES)
        yield from _texts_in(fields, "delta", place)
    choices = fields.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and isinstance(choice.get("delta"), dict):
            yield from _texts_in(choice, "delta", (str(choice.get("index")),))


def _texts_in(
    holder: Any, name: Any, place: tuple[Any, ...]
) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    value = holder[name]
    if isinstance(value, str):
        yield place, holder, name
    elif isinstance(value, dict):
        for key in value:
            if key not in WHOLE and (key not in FOR_TOOLS or isinstance(value[key], str)):
                yield from _texts_in(value, key, (*place, key))
    elif isinstance(value, list):
        for position, each in enumerate(value):
            index = each.get("index", position) if isinstance(each, dict) else position
            yield from _texts_in(value, position, (*place, str(index)))
