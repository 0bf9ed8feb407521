"""The file format of recordings: JSON Lines, a header and then one exchange per line.

    {"format": "agent-magics-recording", "version": 1, "by": "hand", "model": "…", "note": "…"}
    {"prompt": "…", "number": 1, "reply": [{"call": "shell", "arguments": {"command": ["ls"]}}]}
    {"prompt": "…", "number": 2, "outputs": ["…"], "sse": "event: …"}

docs/recordings.md describes every field. A reader skips unknown fields and kinds of lines, so that
newer versions can add some; the format version is raised only for incompatible changes.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from agent_magics.files.plain_files import load_json, read_plain
from agent_magics.models.recordings.handwritten import read_reply, write_reply
from agent_magics.models.wire_capture import HEADERS, Ending
from agent_magics.protocol.errors import FatalError, clause, short_message
from agent_magics.protocol.items import JsonMapping, JsonObject
from agent_magics.text.brief import brief

FORMAT = "agent-magics-recording"
VERSION = 1
BY_HAND = "hand"
MOST_BYTES = 32 << 20
_GIVE_ONE = " Give a file that --record has written (NAME.agent.jsonl)."

WIRES = ("responses", "chat")
ENDINGS = get_args(Ending)
HEADER_FIELDS = frozenset(("kind", "format", "version", "by", "model", "note"))
ANSWER_FIELDS = frozenset(("wire", "status", "headers", "ended", "sse", "body"))
EXCHANGE_FIELDS = ANSWER_FIELDS | frozenset(
    ("kind", "prompt", "number", "turn", "model", "request", "outputs", "failed", "reply")
)


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a recording; `by` is "hand" or the program that made it."""

    by: str
    model: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """The answer to one HTTP request.

    Attributes:
        sse: the answer's stream, without personal data.
        wire: the wire API of that stream: "responses" or "chat".
        status: the HTTP status; 0 where there was no connection.
        headers: the received headers among `capture.HEADERS`.
        body: the body of an answer with an error status.
        ended: how it ended; see `capture.Ending`.
    """

    sse: str = ""
    wire: str = "responses"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    ended: Ending = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, as far as it is needed for matching, and its answer.

    Attributes:
        prompt: the person's message that began the turn.
        number: 1 for the turn's first request, 2 for the next, and so on.
        answer: the last answer, which counts.
        outputs: the tool outputs in the request, normalised; None where not recorded.
        turn: identifies the exchanges of one turn; "" where their order does.
        model: the requested model, "" where not recorded.
        request: the digest of the request, "" where not recorded.
        failed: the earlier answers, after which the request was repeated.
        line: its line in the file, from 1; 0 without a file.
    """

    prompt: str
    number: int
    answer: RecordedAnswer
    outputs: tuple[str, ...] | None = None
    turn: str = ""
    model: str = ""
    request: str = ""
    failed: tuple[RecordedAnswer, ...] = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Recording:
    """A parsed recording; `notice` is one sentence on what was skipped, or ""."""

    header: Header
    exchanges: tuple[Exchange, ...]
    notice: str = ""


# -- reading ------------------------------------------------------------------------------------


def read_recording(path: Path) -> Recording:
    """Read the recording in the file `path`.

    Raises:
        FatalError: no such file, or a malformed line; the sentence names it.
    """
    try:
        content = read_plain(path, MOST_BYTES, links=True)
    except OSError as error:
        raise FatalError(f"Cannot read the recording {path}: {clause(error)}.") from None
    return parse_recording(content, path)


def parse_recording(content: bytes, path: Path) -> Recording:
    """Parse the content of a recording; `path` is used only in messages.

    An incomplete last line (the program that wrote it was killed) is left out, with a notice.

    Raises:
        FatalError: a malformed line; the sentence names it.
    """
    reader = _RecordingReader()
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            reader.read(line, number)
        except _BadLine as problem:
            if number == len(lines) and reader.header is not None and problem.torn:
                reader.torn = number
                break
            hint = _GIVE_ONE if number == 1 and problem.torn else ""
            raise FatalError(
                f"The recording {path}, line {number}: {clause(problem)}.{hint}"
            ) from None
    if reader.header is None:
        raise FatalError(f"The recording {path} is empty; its first line must be a header.")
    return Recording(reader.header, tuple(reader.exchanges), reader.notice(path.name))


class _BadLine(Exception):
    """An error in a line, without a full stop; `torn` if the line may be incomplete."""

    def __init__(self, problem: str, *, torn: bool = False) -> None:
        super().__init__(problem)
        self.torn = torn


class _RecordingReader:
    """Parses line by line, and collects what was skipped."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.exchanges: list[Exchange] = []
        self.torn = 0
        self._skipped: dict[str, int] = {}

    def read(self, line: bytes, number: int) -> None:
        data = _read_object(line)
        if self.header is None:
            self.header = _read_header(data)
            self._skip_fields(data, HEADER_FIELDS, number)
            return
        kind = data.get("kind", "exchange")
        if kind != "exchange":
            self._skipped.setdefault(f"lines of the kind {_shown(kind)}", number)
            return
        self.exchanges.append(_read_exchange(data, number))
        self._skip_fields(data, EXCHANGE_FIELDS, number)

    def _skip_fields(self, data: JsonMapping, known: frozenset[str], number: int) -> None:
        for name in data:
            if name not in known:
                self._skipped.setdefault(f"the field {_shown(name)}", number)

    def notice(self, name: str) -> str:
        """Return one sentence on all that was skipped, or ""."""
        parts = []
        if self._skipped:
            what, line = next(iter(self._skipped.items()))
            more = len(self._skipped) - 1
            others = f" and {more} more of that sort" if more else ""
            parts.append(f"{what} (first in line {line}){others} is unknown here and was skipped")
        if self.torn:
            parts.append(f"line {self.torn}, the last, breaks off in the middle and was left out")
        return f"In the recording {name}, {'; '.join(parts)}." if parts else ""


def _read_object(line: bytes) -> JsonObject:
    try:
        data = load_json(line)
    except UnicodeDecodeError as error:
        raise _BadLine(f"not UTF-8 (byte {error.start + 1})", torn=True) from None
    except ValueError as error:
        raise _BadLine(f"not JSON ({short_message(error)})", torn=True) from None
    if not isinstance(data, dict):
        raise _BadLine("not a JSON object")
    return data


def _read_header(data: JsonMapping) -> Header:
    if data.get("format") != FORMAT:
        raise _BadLine(f'not a header: it must begin {{"format": "{FORMAT}", "version": {VERSION}')
    version = data.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise _BadLine(f'"version" must be a whole number, {VERSION} today, not {_shown(version)}')
    if version > VERSION:
        raise _BadLine(
            f"format version {version} is newer than this agent-magics can read ({VERSION}); "
            "update agent-magics, or record again"
        )
    return Header(*(str(data.get(name, "")) for name in ("by", "model", "note")))


def _read_exchange(data: JsonMapping, line: int) -> Exchange:
    prompt = data.get("prompt")
    if not isinstance(prompt, str):
        raise _BadLine('"prompt" must be a string')
    number = data.get("number")
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise _BadLine('"number" must be 1 for the first request of a prompt, then 2, 3, …')
    outputs = data.get("outputs")
    if outputs is not None and not _is_list_of(outputs, str):
        raise _BadLine('"outputs" must be a list of strings')
    failed = data.get("failed", [])
    if not _is_list_of(failed, dict):
        raise _BadLine('"failed" must be a list of objects')
    return Exchange(
        prompt,
        number,
        _read_answer(data),
        None if outputs is None else tuple(outputs),
        _text_in(data, "turn"),
        _text_in(data, "model"),
        _text_in(data, "request"),
        failed=tuple(map(_read_answer, failed)),
        line=line,
    )


def _read_answer(data: JsonMapping) -> RecordedAnswer:
    if sum(name in data for name in ("sse", "reply", "body")) != 1:
        raise _BadLine('exactly one of "sse", "reply" and "body" must be there')
    wire, status = data.get("wire", "responses"), data.get("status", 200)
    if wire not in WIRES:
        raise _BadLine(f'"wire" must be one of {", ".join(WIRES)}, not {_shown(wire)}')
    if not isinstance(status, int) or isinstance(status, bool) or not 0 <= status <= 999:
        raise _BadLine('"status" must be an HTTP status, or 0')
    headers = data.get("headers", {})
    if not isinstance(headers, dict) or not _is_list_of(list(headers.values()), str):
        raise _BadLine('"headers" must be an object of strings')
    ended = data.get("ended", "")
    if ended not in ENDINGS:
        raise _BadLine(f'"ended" must be one of {", ".join(filter(None, ENDINGS))}')
    if "reply" in data:
        try:
            return RecordedAnswer(write_reply(read_reply(data["reply"])).decode("utf-8", "replace"))
        except ValueError as problem:
            raise _BadLine(short_message(problem)) from None
    known = {name: value for name, value in headers.items() if name in HEADERS}
    return RecordedAnswer(_text_in(data, "sse"), wire, status, known, _text_in(data, "body"), ended)


def _text_in(data: JsonMapping, name: str) -> str:
    text = data.get(name, "")
    if not isinstance(text, str):
        raise _BadLine(f'"{name}" must be a string')
    return text


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _shown(value: object) -> str:
    """Return a value of a file, shortened, for a message."""
    return brief(json.dumps(value, ensure_ascii=False), 80)


# -- writing ------------------------------------------------------------------------------------


def header_line(header: Header) -> bytes:
    """Return the first line of a file, for `header`."""
    fields = {"by": header.by, "model": header.model, "note": header.note}
    return _line({"format": FORMAT, "version": VERSION, **fields})


def exchange_line(exchange: Exchange) -> bytes:
    """Return the line for `exchange`, without fields that have their default."""
    fields: JsonObject = {"prompt": exchange.prompt, "number": exchange.number}
    fields |= {
        name: value for name in ("turn", "model", "request") if (value := getattr(exchange, name))
    }
    if exchange.outputs is not None:
        fields["outputs"] = list(exchange.outputs)
    if exchange.failed:
        fields["failed"] = [_answer_json(answer) for answer in exchange.failed]
    return _line({**fields, **_answer_json(exchange.answer)})


def _answer_json(answer: RecordedAnswer) -> JsonObject:
    fields: JsonObject = {} if answer.wire == "responses" else {"wire": answer.wire}
    if answer.status != 200:
        fields["status"] = answer.status
    if answer.headers:
        fields["headers"] = dict(answer.headers)
    if answer.ended:
        fields["ended"] = answer.ended
    return {**fields, **({"body": answer.body} if answer.body else {"sse": answer.sse})}


def _line(fields: JsonMapping) -> bytes:
    # Surrogates (from undecodable bytes of an answer) become JSON escapes.
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


# -- turns --------------------------------------------------------------------------------------


@dataclass(slots=True)
class RecordedTurn:
    """The exchanges of one turn, in the order of the file."""

    prompt: str
    exchanges: list[Exchange] = field(default_factory=list)


def prompt_key(prompt: str) -> str:
    """Return a prompt with normalised white space, as it is compared."""
    return " ".join(prompt.split())


def turns_of(exchanges: Sequence[Exchange]) -> list[RecordedTurn]:
    """Group exchanges into turns, in the order of the file.

    They name their turn; where they do not (in a handwritten file), number 1 begins a new one.
    """
    turns: list[RecordedTurn] = []
    known: dict[tuple[str, str], RecordedTurn] = {}
    for exchange in exchanges:
        key = (exchange.turn, prompt_key(exchange.prompt))
        if key not in known or (not exchange.turn and exchange.number == 1):
            known[key] = RecordedTurn(key[1])
            turns.append(known[key])
        known[key].exchanges.append(exchange)
    return turns
