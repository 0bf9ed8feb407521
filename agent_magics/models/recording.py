"""The file format of recordings: one JSON object a line, a header, then one exchange each.

    {"format": "agent-magics-recording", "version": 1, "by": "hand", "model": "…", "note": "…"}
    {"prompt": "…", "number": 1, "reply": [{"call": "shell", "arguments": {"command": ["ls"]}}]}
    {"prompt": "…", "number": 2, "outputs": ["…"], "sse": "event: …"}

What the provider said stands under "sse" as it would stream it, or, written by hand, under
"reply" as a list of {"text"}, {"reasoning"}, {"call", "arguments"} and {"custom", "input"}.
Nothing personal goes into a file: paths become placeholders, which become paths again on replay. So
do the ids of command sessions, which are random: {session1} is the first of the conversation.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from agent_magics.models.responses_wire import item_json
from agent_magics.models.sse import SseDecoder, reply_events
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    Item,
    Reasoning,
)

FORMAT = "agent-magics-recording"
VERSION = 1

Replacements: TypeAlias = Sequence[tuple[str, str]]
"""Pairs of a personal path and the name of its placeholder, longest path first."""

PLACEHOLDERS = ("cwd", "home", "tmp")


@dataclass(frozen=True, slots=True)
class Header:
    """A recording's first line; `by` is "hand" or the program that made it."""

    by: str
    model: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, as far as it is needed to find it again, and its answer.

    Attributes:
        prompt: the words that began the turn.
        number: 1 for the turn's first request, 2 for the next, and so on.
        outputs: the tool outputs the request brought, normalised; None where not recorded.
        sse: the answer as the provider streams it.
    """

    prompt: str
    number: int
    outputs: tuple[str, ...] | None
    sse: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole file."""

    header: Header
    exchanges: tuple[Exchange, ...]


# -- reading ------------------------------------------------------------------------------------


def read_recording(path: Path) -> Recording:
    """Return the recording in the file `path`.

    Raises:
        FatalError: no such file, or a line that does not fit; the sentence names it.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"Cannot read the recording {path}: {error}.") from None
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise FatalError(f"The recording {path} is empty; its first line must be a header.")
    try:
        number, line = numbered[0]
        header = _read_header(_read_object(line))
        exchanges = []
        for number, line in numbered[1:]:  # noqa: B007 - the number is told in the error
            exchanges.append(_read_exchange(_read_object(line)))
    except _BadLine as problem:
        raise FatalError(f"The recording {path}, line {number}: {problem}.") from None
    return Recording(header, tuple(exchanges))


class _BadLine(Exception):
    """What is wrong with a line, without a full stop."""


def _read_object(line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise _BadLine(f"not JSON ({error})") from None
    if not isinstance(data, dict):
        raise _BadLine("not a JSON object")
    return data


def _read_header(data: Mapping[str, Any]) -> Header:
    if data.get("format") != FORMAT:
        raise _BadLine(f'not a header: it must begin {{"format": "{FORMAT}", "version": 1')
    if data.get("version") != VERSION:
        version = data.get("version")
        raise _BadLine(f"format version {version!r} is unknown (this is {VERSION}); update?")
    return Header(*(str(data.get(name, "")) for name in ("by", "model", "note")))


def _read_exchange(data: Mapping[str, Any]) -> Exchange:
    unknown = set(data) - {"prompt", "number", "outputs", "sse", "reply"}
    if unknown:
        raise _BadLine(f"unknown field {sorted(unknown)[0]!r}")
    prompt, number = data.get("prompt"), data.get("number")
    if not isinstance(prompt, str):
        raise _BadLine('"prompt" must be a string')
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise _BadLine('"number" must be 1 for the first request of a prompt, then 2, 3, …')
    return Exchange(prompt, number, _read_outputs(data.get("outputs")), _read_sse(data))


def _read_outputs(outputs: Any) -> tuple[str, ...] | None:
    if outputs is None:
        return None
    if isinstance(outputs, list) and all(isinstance(output, str) for output in outputs):
        return tuple(outputs)
    raise _BadLine('"outputs" must be a list of strings')


def _read_sse(data: Mapping[str, Any]) -> str:
    if ("sse" in data) == ("reply" in data):
        raise _BadLine('exactly one of "sse" and "reply" must be there')
    if "sse" not in data:
        return write_reply(_read_reply(data["reply"])).decode("utf-8")
    if not isinstance(data["sse"], str):
        raise _BadLine('"sse" must be a string')
    return data["sse"]


def _read_reply(reply: Any) -> list[Item]:
    """Return the items of an answer written by hand; calls are numbered call_1, call_2, …"""
    if not isinstance(reply, list) or not all(isinstance(piece, dict) for piece in reply):
        raise _BadLine('"reply" must be a list of objects')
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
    raise _BadLine(
        'a piece of "reply" must be {"text"}, {"reasoning"}, {"call", "arguments"} or '
        f'{{"custom", "input"}}, not {json.dumps(piece, ensure_ascii=False)[:80]}'
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


# -- writing ------------------------------------------------------------------------------------


def start_recording(path: Path, header: Header) -> None:
    """Write the header where `path` does not exist yet; else check that it is a recording.

    Raises:
        FatalError: the file is something else, or cannot be written.
    """
    if path.exists():
        read_recording(path)
        return
    fields = {"format": FORMAT, "version": VERSION, "by": header.by, "model": header.model}
    _append(path, {**fields, "note": header.note})


def append_exchange(path: Path, exchange: Exchange) -> None:
    """Add `exchange` at the file's end."""
    _append(path, exchange_json(exchange))


def exchange_json(exchange: Exchange) -> dict[str, Any]:
    """Return the line of `exchange` as an object."""
    line: dict[str, Any] = {"prompt": exchange.prompt, "number": exchange.number}
    if exchange.outputs is not None:
        line["outputs"] = list(exchange.outputs)
    return {**line, "sse": exchange.sse}


def _append(path: Path, line: Mapping[str, Any]) -> None:
    text = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text)
    except OSError as error:
        raise FatalError(f"Cannot write the recording {path}: {error}.") from None


def canonical_sse(sse: bytes, paths: Replacements) -> str:
    """Return an answer's SSE bytes with the same items, but nothing personal or volatile.

    The answer is written anew from its whole items: a path may be split over two deltas, where
    no replacement would find it, and ids, times and encrypted reasoning are of no use to others.
    """
    decoder = SseDecoder()
    items, response = [], {}
    for _, data in decoder.feed(sse) + decoder.close():
        fields = json.loads(data) if data != b"[DONE]" else {}
        kind = fields.get("type")
        if kind == "response.output_item.done":
            items.append(_hide_in(_without_volatile(fields["item"]), paths))
        elif kind in ("response.completed", "response.incomplete"):
            response = fields["response"]
    incomplete = (response.get("incomplete_details") or {}).get("reason")
    events = reply_events(items, usage=response.get("usage"), incomplete=incomplete)
    return b"".join(events).decode("utf-8")


def _without_volatile(item: Mapping[str, Any]) -> dict[str, Any]:
    dropped = ("id", "encrypted_content")
    return {name: value for name, value in item.items() if name not in dropped}


def _hide_in(value: Any, paths: Replacements) -> Any:
    if isinstance(value, str):
        return hide_paths(value, paths)
    if isinstance(value, list):
        return [_hide_in(element, paths) for element in value]
    if isinstance(value, dict):
        return {name: _hide_in(element, paths) for name, element in value.items()}
    return value


# -- paths --------------------------------------------------------------------------------------


def personal_paths(cwd: Path) -> Replacements:
    """Return the paths that say whose machine this is, each also as JSON text may escape it."""
    places = {"cwd": cwd, "home": Path.home(), "tmp": Path(tempfile.gettempdir())}
    pairs: dict[str, str] = {}
    for name, place in places.items():
        for path in (os.path.abspath(place), os.path.realpath(place)):
            if len(path) > 1:  # A root folder is nobody's.
                pairs.setdefault(path, name)
                pairs.setdefault(json.dumps(path)[1:-1], name)
    return sorted(pairs.items(), key=lambda pair: -len(pair[0]))


_NAMES = "|".join((*PLACEHOLDERS, r"session[1-9]\d*"))
_LITERAL = re.compile(rf"\{{((?:literal:)*(?:{_NAMES}))\}}")
_MARK = re.compile(rf"\{{(literal:)?((?:literal:)*(?:{_NAMES}))\}}")


def hide_paths(text: str, paths: Replacements) -> str:
    """Return `text` with placeholders such as {cwd} for personal paths; see `show_paths`.

    Text that already looks like a placeholder (the braces of an f-string, say) is marked as
    {literal:cwd}, so that it comes back as it was.
    """
    return _replace_paths(_LITERAL.sub(r"{literal:\1}", text), paths)


def _replace_paths(text: str, paths: Replacements) -> str:
    if not paths:
        return text
    names = dict(paths)
    # Not inside a longer path: /tmp is not in /home/x/tmp or {cwd}/tmp, /home/ann not in
    # /home/anna.
    choices = "|".join(re.escape(path) for path, _ in paths)
    pattern = rf"(?<![\w.}}-])(?:{choices})(?![\w-]|\.\w)"
    return re.sub(pattern, lambda found: f"{{{names[found.group()]}}}", text)


def show_paths(text: str, places: Mapping[str, str]) -> str:
    """Return `text` with `places` for its placeholders; the inverse of `hide_paths`."""

    def show(mark: re.Match[str]) -> str:
        literal, name = mark.groups()
        return f"{{{name}}}" if literal else places.get(name, mark.group())

    return _MARK.sub(show, text)


# -- sessions -----------------------------------------------------------------------------------

_SESSION = re.compile(r"\bsession (\d{4,9})\b", re.IGNORECASE)


def session_names(outputs: Iterable[str]) -> dict[str, str]:
    """Return the ids of command sessions that tool outputs name -> "session1", "session2", …"""
    ids = dict.fromkeys(found for output in outputs for found in _SESSION.findall(output))
    return {session_id: f"session{number}" for number, session_id in enumerate(ids, 1)}


# -- what differs from run to run -----------------------------------------------------------------

# In this order. Each keeps away from a brace, so that what one has replaced changes nothing for
# the others.
VOLATILE = (
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "{uuid}"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d))?", "{time}"),
    (r"\d+(?:\.\d+)?(?:e-?\d+)? ?(?:seconds?|secs?|ms|µs|us|ns|s)", "{duration}"),
    (r"0x[0-9a-f]{6,}", "{address}"),
    (r"(pid|process(?: id)?)([ :=#]+)\d+", r"\1\2{pid}"),
    (r"(token count: )\d+", r"\1{count}"),  # it counts what is replaced here, too
)
# A line of ls -l: owner, group and time are of the machine.
LISTED_FILES = (
    r"(?m)^([-dlbcps][-rwxst]{9})[.+@]? +\d+ +\S+ +\S+ +(\d+) +\w{3} +\d+ +[\d:]{4,5} ",
    r"\1 {owner} \2 {time} ",
)
TEMPORARY_NAMES = (r"\{tmp\}/tmp\w+", "{tmp}/{name}")
_VOLATILE = tuple(
    (re.compile(pattern, re.IGNORECASE), mark)
    for pattern, mark in (
        *((rf"(?<![\w}}]){pattern}(?![\w{{])", mark) for pattern, mark in VOLATILE),
        TEMPORARY_NAMES,
        LISTED_FILES,
    )
)


def normalise_text(text: str, paths: Replacements = ()) -> str:
    """Return a tool's output with placeholders for what differs from run to run.

    Paths, ISO times, durations, hexadecimal addresses, UUIDs, process ids, token counts, temporary
    names, the owners and times of ``ls -l``. Normalising twice changes nothing. There is no way
    back.
    """
    text = _replace_paths(text, paths).strip()
    for pattern, mark in _VOLATILE:
        text = pattern.sub(mark, text)
    return text
