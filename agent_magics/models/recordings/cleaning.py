"""Makes of what a provider streamed what may stand in a file: the same events, nothing personal.

Every event stays, in its place and in its pieces, also those that this version does not read. Taken
out are ids, times and what is opaque; paths and keys are found also where the stream cuts them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agent_magics.models.hiding import Hider
from agent_magics.models.sse import SseDecoder, SseEvent

# Of no use to others: bound to an account, random, or padding.
OPAQUE = frozenset(
    (
        *("encrypted_content", "thought_signature", "obfuscation", "logprobs", "top_logprobs"),
        *("created", "created_at", "completed_at", "system_fingerprint", "user"),
        *("safety_identifier", "prompt_cache_key", "previous_response_id"),
    )
)
# The Responses API repeats the whole request in its first and last events; these are the answer.
RESPONSE_FIELDS = frozenset(
    ("object", "status", "error", "incomplete_details", "output", "usage", "service_tier")
)
# Fields by which pieces of one text are told from those of another.
PLACES = ("type", "output_index", "item_id", "content_index", "summary_index")
# Of a chat delta these come whole.
WHOLE = frozenset(("id", "type", "role"))


def clean_sse(sse: bytes, hider: Hider) -> str:
    """Return an answer's SSE bytes as a file may hold them; a JSON document likewise.

    Half an event at the end, which no client acts on, is left out. Bytes that are no text stay:
    they are surrogates here, as ``surrogateescape`` makes them.
    """
    if sse.lstrip().startswith(b"{"):
        document = _parse(sse)
        return _text(sse, hider) if document is None else _cleaned([document], hider)[0]
    decoder = SseDecoder()
    events = decoder.feed(sse)
    events += [event for event in decoder.close() if _parse(event[1]) is not None]
    return "".join(_clean_events(events, hider))


def sse_bytes(text: str) -> bytes:
    """Return the bytes of an answer that `clean_sse` has made a text of."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # by hand
        return text.encode("utf-8", "replace")


def _clean_events(events: list[SseEvent], hider: Hider) -> Iterator[str]:
    parsed = [_parse(data) for _, data in events]
    documents = _drop_repeated([fields for fields in parsed if fields is not None])
    cleaned = iter(_cleaned(documents, hider))
    kept = set(map(id, documents))
    for (name, data), fields in zip(events, parsed, strict=True):
        if fields is not None and id(fields) not in kept:
            continue
        said = _text(data, hider) if fields is None else next(cleaned)
        head = f"event: {_text(name, hider)}\n" if name else ""
        yield head + "".join(f"data: {line}\n" for line in said.split("\n")) + "\n"


def _drop_repeated(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out deltas that came twice: no client reads them, and they would part a path."""
    kept, last = [], -1
    for fields in documents:
        number = fields.get("sequence_number")
        if isinstance(number, int) and "delta" in fields:
            if number <= last:
                continue
            last = number
        kept.append(fields)
    return kept


def _parse(data: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def _text(data: bytes, hider: Hider) -> str:
    """What is no JSON stays as it is, byte for byte."""
    return hider(data.decode("utf-8", "surrogateescape"))


def _cleaned(documents: list[dict[str, Any]], hider: Hider) -> list[str]:
    """Return the events' JSON, cleaned."""
    names: dict[str, str] = {}
    for fields in documents:
        # A server that does not stream sends what is the last event's response elsewhere.
        _drop_opaque(fields, names, "response" if fields.get("object") == "response" else "")
    spared = _hide_streamed(documents, hider)
    return [_dumped(hider.in_json(fields, spared)) for fields in documents]


def _dumped(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return json.dumps(fields, separators=(",", ":"))  # half a surrogate pair stays an escape


def _drop_opaque(value: Any, names: dict[str, str], within: str = "") -> None:
    """Take out what is of no use to others, and give items ids that say nothing."""
    if isinstance(value, list):
        for each in value:
            _drop_opaque(each, names, within)
    if not isinstance(value, dict):
        return
    for name, each in list(value.items()):
        gone = name in OPAQUE or (within == "response" and name not in RESPONSE_FIELDS)
        if gone or (name == "id" and "choices" in value):
            del value[name]
        elif name in ("id", "item_id") and isinstance(each, str) and each and _is_item(value):
            value[name] = names.setdefault(each, f"item_{len(names) + 1}")
        else:
            _drop_opaque(each, names, name)


def _is_item(fields: Mapping[str, Any]) -> bool:
    """Whether an id is the Responses API's for an item; on the chat wire it is that of a call."""
    return "function" not in fields and "custom" not in fields


# -- texts that come in pieces --------------------------------------------------------------------


def _hide_streamed(documents: list[dict[str, Any]], hider: Hider) -> set[tuple[int, Any]]:
    """Clean texts that come in pieces; return where the pieces stand."""
    texts: dict[tuple[Any, ...], list[tuple[Any, Any]]] = {}
    for fields in documents:
        for place, holder, name in _pieces_of(fields):
            texts.setdefault(place, []).append((holder, name))
    for pieces in texts.values():
        cleaned = hider.in_pieces([holder[name] for holder, name in pieces])
        for (holder, name), text in zip(pieces, cleaned, strict=True):
            holder[name] = text
    return {(id(holder), name) for pieces in texts.values() for holder, name in pieces}


def _pieces_of(fields: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield an event's pieces: which text each belongs to, its container, its name there."""
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
            if key not in WHOLE:
                yield from _texts_in(value, key, (*place, key))
    elif isinstance(value, list):
        for position, each in enumerate(value):
            index = each.get("index", position) if isinstance(each, dict) else position
            yield from _texts_in(value, position, (*place, str(index)))
