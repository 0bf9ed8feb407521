"""Reads the record of a conversation: the entries to apply again, and unfinished calls' outputs.

Law: the whole lines of a record are used up to the first damaged one, and nothing after it. A
partial last line, left by a killed kernel, is no damage; zeros, left by a power loss, are.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import chain, repeat, starmap
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from agent_magics.files.plain_files import open_plain
from agent_magics.protocol import records
from agent_magics.protocol.codec import from_json, is_typed
from agent_magics.protocol.errors import FatalError, clause, short_message
from agent_magics.protocol.events import (
    TURN_ENDS,
    CellChanged,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    ItemCompleted,
    ModelInformed,
    PlanUpdated,
    SessionConfigured,
    SubAgentChanged,
    ToolCallCompleted,
    ToolCallFailed,
    TurnStarted,
    VariablesKnown,
)
from agent_magics.protocol.items import (
    CALL_TYPES,
    CallItem,
    Content,
    Item,
    ToolCallOutput,
    UserMessage,
    output_kind_of,
)
from agent_magics.protocol.records import Entry, ItemAdded, RecordBegun, TurnOpened
from agent_magics.records.places import MOST_READ, find, part_path

_MOST_FIRST = 1 << 20  # bytes of its first line

Done: TypeAlias = Entry | CellChanged | PlanUpdated | SubAgentChanged | VariablesKnown

_BEGUN = b'{"type":"RecordBegun"'
_KIND = re.compile(rb'\{"type": ?"(\w+)"')
_NUMBER = re.compile(rb'\{"type": ?"\w+", ?"seq": ?(\d{1,15})\b')
_TURN = re.compile(rb'"turn_id": ?"([^"]*)"')
_ENTRIES = {
    name.encode()
    for name, kind in vars(records).items()
    if isinstance(kind, type) and issubclass(kind, Entry)
}
_DONE = {*_ENTRIES, b"CellChanged", b"PlanUpdated", b"SubAgentChanged", b"VariablesKnown"}
_SESSIONS = {b"ExecCommandBegin", b"ExecCommandEnd"}
# Of the last turn: what may not be in the history yet, and whether it has ended.
_SHOWN = {b"ToolCallCompleted", b"ToolCallFailed", *(e.__name__.encode() for e in TURN_ENDS)}

EARLIER = (
    "It was recorded by an earlier version, which kept no images of prompts and no words that were "
    "added while it worked; both are missing."
)
UNANSWERED = "Not finished; whether it did its work is not known."
CUT_OFF = "Line {number} of its record is damaged; what comes after it is left out."


@dataclass(slots=True)
class Record:
    """The content of a record.

    Attributes:
        begun: its first line.
        done: the entries, and the plans, in order; with those of the past that it was forked from.
        outputs: outputs of calls of its last turn, by call id.
        prompt: the person's last prompt, if it was shown and is not in the history yet.
        sessions: the commands of sessions that had not ended, by session id.
        changed: the turns that changed files.
        last: the number (`seq`) of its last event.
        size: the used bytes of the record.
        is_damaged: whether there is more, which is not used.
        notes: sentences about missing parts.
    """

    begun: RecordBegun
    done: list[Done] = field(default_factory=list)
    outputs: dict[str, Content] = field(default_factory=dict)
    prompt: str = ""
    sessions: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    last: int = 0
    size: int = 0
    is_damaged: bool = False
    notes: list[str] = field(default_factory=list)


def read_first(folder: Path, conversation: str) -> RecordBegun:
    """Read the first line; for the arguments and errors see `read_record`."""
    path = find(folder, conversation)
    with _opened(path) as file:
        line = file.readline(_MOST_FIRST)
        if not line or line.startswith(_BEGUN):
            return read_lines(BytesIO(line), path.stem).begun
        return read_lines(file, path.stem).begun


def read_record(folder: Path, conversation: str) -> Record:
    """Read the record of a conversation, line by line: most lines of a long one are not used.

    Args:
        folder: the folder of all records.
        conversation: its id, or the beginning of it.

    Raises:
        FatalError: there is no such record, or it is of a newer version.
    """
    path = find(folder, conversation)
    parts = read_first(folder, path.stem).past
    past = ((part_path(path, part.conversation), part.size) for part in parts)
    with _opened(path) as file:
        return read_lines(file, path.stem, chain.from_iterable(starmap(_past_lines, past)))


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a record of bounded size.

    Raises:
        FatalError: it cannot be read, or is too large.
    """
    try:
        with open(open_plain(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > MOST_READ:
                raise FatalError(f"{path} cannot be read: it is larger than {MOST_READ >> 20} MiB.")
            yield file
    except OSError as error:
        raise FatalError(f"{path} cannot be read: {clause(error)}.") from None


def _past_lines(path: Path, size: int) -> Iterator[bytes]:
    """Yield the lines within the first `size` bytes of a record."""
    with _opened(path) as file:
        while size > 0 and (line := file.readline(size)):
            size -= len(line)
            yield line


def read_lines(file: BinaryIO, conversation: str, past: Iterable[bytes] = ()) -> Record:
    """Parse the lines of a record; for the errors see `read_record`.

    Args:
        file: the record, which can be sought in.
        conversation: its id.
        past: the preceding lines in the records that it was forked from.
    """
    start = _start(file)
    if start is None:
        file.seek(0)
        return _read_events(file.read(), conversation)
    file.seek(start)
    record = Record(RecordBegun(conversation=conversation, agent=""), size=start)
    shown: list[bytes] = []  # events of the last turn that may not be in the history yet
    own = zip(file, repeat(True), strict=False)
    lines = chain(zip(past, repeat(False), strict=False), own)
    for number, (line, is_own) in enumerate(lines, 1):
        if is_own and not line.endswith(b"\n"):
            break  # a partial line
        try:
            _take(record, line.rstrip(b"\n"), shown)
        except ValueError:
            record.is_damaged = True
            record.notes.append(CUT_OFF.format(number=number))
            break
        record.size += len(line) * is_own
        if found := _NUMBER.match(line):
            record.last = int(found[1])
    _look_at(record, list(_readable(shown)))
    return record


def _start(file: BinaryIO) -> int | None:
    """Return where a record begins; None for one of version 1, which has events alone.

    Lines before its beginning are of an earlier version, and were written again after it.
    """
    file.seek(0)
    start, is_earlier = 0, False
    for line in file:
        if line.startswith(_BEGUN):
            return start
        is_earlier = is_earlier or (start == 0 and _KIND.match(line) is not None)
        start += len(line)
    return None if is_earlier else 0


def _take(record: Record, line: bytes, shown: list[bytes]) -> None:
    """Add a line to what is read of a record.

    Args:
        record: what was read before it.
        line: the line, without its end.
        shown: the events of the last turn.

    Raises:
        ValueError: it is damaged.
    """
    kind = _KIND.match(line)
    name = kind[1] if kind else b""
    if name in _DONE or not (name and line.endswith(b"}")) or b"\0" in line:
        done = _noun(line)
        if isinstance(done, RecordBegun):
            record.begun = replace(done, conversation=record.begun.conversation)
        else:
            record.done.append(done)
    elif name == b"TurnStarted":
        shown[:] = [line]
    elif name in _SHOWN:
        shown.append(line)
    elif name == b"TurnDiffUpdated" and (turn := _TURN.search(line)):
        record.changed.add(turn[1].decode("utf-8", "replace"))
    elif name in _SESSIONS and b'"session_id":""' not in line:
        _note_session(record, _noun(line))


def _readable(lines: Iterable[bytes]) -> Iterator[Event]:
    for line in lines:
        with suppress(ValueError):
            yield _noun(line)


def _look_at(record: Record, shown: Sequence[Event]) -> None:
    """Find the last turn's prompt and outputs that may be missing in the history."""
    begun = shown[0] if shown and isinstance(shown[0], TurnStarted) else None
    items = [] if begun is None else _items_of(record.done, begun.turn_id)
    # Some servers use an id for several calls of a turn; the first ones have their outputs.
    answered = Counter(item.call_id for item in items if isinstance(item, ToolCallOutput))
    record.outputs = _outputs(shown, answered)
    if begun is None or any(isinstance(e, UserMessage) and e.role == "user" for e in items):
        return
    # A prompt that is still missing when its turn has ended is not wanted.
    if not any(isinstance(e, TURN_ENDS) and e.turn_id == begun.turn_id for e in shown):
        record.prompt = begun.prompt


def _note_session(record: Record, event: Event) -> None:
    if isinstance(event, ExecCommandBegin):
        record.sessions[event.session_id] = " ".join(event.command)
    elif isinstance(event, ExecCommandEnd):
        record.sessions.pop(event.session_id, None)


def _items_of(done: Sequence[Done], turn_id: str) -> list[Item]:
    """Return the items that the history contains of the last turn, if that has this id."""
    for place in reversed(range(len(done))):
        opened = done[place]
        if isinstance(opened, TurnOpened):
            later = done[place:] if opened.turn_id == turn_id else []
            return [entry.item for entry in later if isinstance(entry, ItemAdded)]
    return []


def _noun(line: bytes) -> Any:
    """Parse a line.

    Raises:
        ValueError: it is damaged.
        FatalError: it is of a newer version.
    """
    try:
        return _read_noun(line)
    except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"no line of ours: {short_message(error)}") from None


def _read_noun(line: bytes) -> Any:
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError("no object")
    if data.get("type") == "RecordBegun" and data.get("version", 0) > records.VERSION:
        raise FatalError(
            f"This conversation is recorded in form {data['version']}, which a newer version of "
            f"agent-magics has written; this one reads up to {records.VERSION}. Update it."
        )
    try:
        noun = from_json(data)
    except FatalError as error:
        raise ValueError(short_message(error)) from None
    if is_typed(noun):
        return noun
    if isinstance(noun, RecordBegun):
        raise FatalError(
            f"The first line of conversation {noun.conversation} was changed; it is not used."
        )
    raise ValueError("values of other types")


def _outputs(events: Iterable[Event], answered: Mapping[str, int]) -> dict[str, Content]:
    """Return the outputs by call id, without the first ones of an id, as many as are `answered`."""
    left = Counter(answered)
    outputs = {}
    for event in events:
        if isinstance(event, ToolCallCompleted | ToolCallFailed) and event.parent_call_id is None:
            if left[event.call_id]:
                left[event.call_id] -= 1
            else:
                outputs[event.call_id] = event.output
    return outputs


# -- version 1: events alone -----------------------------------------------------------------------

_EVENTS = {
    kind.__name__.encode()
    for kind in (
        SessionConfigured,
        TurnStarted,
        ItemCompleted,
        ModelInformed,
        PlanUpdated,
        ToolCallCompleted,
        ToolCallFailed,
    )
}


def _read_events(data: bytes, conversation: str) -> Record:
    """Convert events of a version 1 record to entries, as far as events describe the items."""
    events = []
    lines = data.split(b"\n")[:-1]  # the last is "", or a partial line
    for line in lines:
        kind = _KIND.match(line)
        if kind is None:
            break
        if kind[1] in _EVENTS:
            try:
                events.append(_noun(line))
            except ValueError:
                break
    configured = next((e for e in events if isinstance(e, SessionConfigured)), None)
    settings: Mapping[str, Any] = {} if configured is None else {"model": configured.model}
    begun = RecordBegun(
        version=1,
        conversation=conversation,
        agent=events[0].agent if events else "",
        at=events[0].at if events else 0.0,
        cwd="" if configured is None else configured.cwd,
        settings=settings,
    )
    done: list[Done] = []
    for turn in _by_turn(events):
        done += _entries_of(turn)
    last = next((int(n[1]) for n in map(_NUMBER.match, reversed(lines)) if n), 0)
    return Record(begun, done, last=last, notes=[EARLIER])


def _by_turn(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield the events of each prompt's turn."""
    turns: dict[str, list[Event]] = {}
    for event in events:
        if isinstance(event, TurnStarted):
            turns[event.turn_id] = []
        if event.turn_id in turns:
            turns[event.turn_id].append(event)
    yield from turns.values()


def _entries_of(turn: list[Event]) -> Iterator[Done]:
    outputs = _outputs(turn, {})
    waiting: list[CallItem] = []  # calls, in order; their outputs precede the next items
    yield TurnOpened(turn_id=turn[0].turn_id)
    for event in turn:
        match event:
            case TurnStarted(prompt=prompt):
                yield ItemAdded(item=UserMessage(prompt))
            case PlanUpdated():
                yield event
            case ItemCompleted(item=item) if isinstance(item, CALL_TYPES):
                if item.call_id:
                    yield ItemAdded(item=item)
                    waiting.append(item)
            case ItemCompleted() | ModelInformed():
                yield from _answers(waiting, outputs)
                waiting.clear()
                yield (
                    ItemAdded(item=event.item)
                    if isinstance(event, ItemCompleted)
                    else ItemAdded(item=UserMessage(event.message, role="developer"))
                )
    yield from _answers(waiting, outputs)


def _answers(calls: Iterable[CallItem], outputs: Mapping[str, Content]) -> Iterator[ItemAdded]:
    for call in calls:
        output = outputs.get(call.call_id or "", UNANSWERED)
        yield ItemAdded(item=ToolCallOutput(call.call_id or "", output, output_kind_of(call)))
