"""Refuses answers of too many parts, and cuts what is nested too deeply out of a list of tools.

Halves of characters, which no parser takes, are replaced.

One tool then does not lose the others: the parser refuses a message with more than 200 levels as a
whole. What is left of such a schema is still deeper than any that is offered (`client/schemas.py`),
so the tool is left out, with that reason.
"""

import re
from collections.abc import AsyncIterator
from itertools import islice

import httpx2
from pydantic_core import from_json

_DEEPEST = 150
# An unclosed string reaches to the end; searching again from each quote would take quadratic time.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
# Up to a comma or an opening bracket outside of strings, or to the end.
_PART = re.compile(
    rb'[^,\[{"]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?[^,\[{"]*+)*+(?:[,\[{]|\Z)', re.DOTALL
)
# An escape for one half of a character without the other: a program has cut its text between them.
_HALF = re.compile(
    rb"(?<!\\)((?:\\\\)*+)\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
MOST_PARTS = 500_000  # the event loop is held while a message is parsed and checked, below a second
_LINE_END = re.compile(rb"(?<=[\r\n])")
_EVENT_DATA = b"data:"
_RETRY = re.compile(rb" ?[1-9]\d{2,6}")  # milliseconds: at 0 the requests would follow without end


def why_refused(message: bytes) -> str:
    """Return why a message is not parsed, "" where it is: it has too many values."""
    if sum(map(message.count, (b",", b"[", b"{"))) <= MOST_PARTS:
        return ""
    if next(islice(_PART.finditer(message), MOST_PARTS + 1, None), None) is None:
        return ""
    return f"the answer has more than {MOST_PARTS:,} parts"


def shallow_listing(message: bytes) -> bytes:
    """Return a list of tools with `null` for parts that are nested too deeply; else the message.

    Halves of characters are replaced in both.

    Raises:
        StreamError: it has too many parts.
    """
    if why := why_refused(message):
        raise httpx2.StreamError(why)
    if rb"\ud" in message or rb"\uD" in message:
        message = _HALF.sub(rb"\1\\ufffd", message)
    if message.count(b"{") + message.count(b"[") <= _DEEPEST:
        return message
    shallow = _cut(message)
    if shallow is message:
        return message
    try:
        parsed = from_json(shallow)
    except ValueError:
        return message  # the parser reports what is wrong
    result = parsed.get("result") if isinstance(parsed, dict) else None
    is_listing = isinstance(result, dict) and isinstance(result.get("tools"), list)
    return shallow if is_listing else message


async def shallow_events(pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield an event stream by lines, each event's data as one, with `shallow_listing` of it.

    A time to wait before the next request is left out where it is too short, or endless.

    Raises:
        StreamError: a line, or an event's data, has more than `most` bytes, or too many parts.
    """
    data = bytearray()
    async for line in _lines(pieces, most):
        name, _, value = line.partition(b":")
        if name == b"data":
            data += b" " + value if data else value  # as JSON a line end is a blank
            _check_length(data, "an event of the event stream", most)
            continue
        if not line and data:
            yield _EVENT_DATA + shallow_listing(bytes(data)) + b"\n"
            data.clear()
        if name != b"retry" or _RETRY.fullmatch(value):
            yield line + b"\n"


async def _lines(pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield the complete lines of an event stream, without their ends."""
    rest, after_return = bytearray(), False
    async for piece in pieces:
        *lines, last = _LINE_END.split(piece)
        for line in lines:
            if not (line == b"\n" and after_return and not rest):
                yield bytes(rest) + line[:-1]
            rest.clear()
            after_return = line.endswith(b"\r")
        rest += last
        _check_length(rest, "a line of the event stream", most)


def _check_length(text: bytearray, what: str, most: int) -> None:
    if len(text) > most:
        raise httpx2.StreamError(f"{what} has more than {most:,} bytes")


def _cut(message: bytes) -> bytes:
    """Replace each part below `_DEEPEST` levels by `null`; return `message` itself without one."""
    kept, begin, depth = list[bytes](), 0, 0
    for token in _TOKEN.finditer(message):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == _DEEPEST + 1:
                kept.append(message[begin : token.start()])
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == _DEEPEST:
                begin = token.end()
    return b"null".join([*kept, message[begin:]]) if kept else message
