"""Lists recorded conversations from an index that is rebuilt from the records where it is stale.

The index is a cache: a row is valid as long as its record has the same size and time. So it may be
deleted, and several kernels may write it; the last one wins.
"""

import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

from agent_magics.files.locks import hold, is_held
from agent_magics.files.plain_files import read_plain
from agent_magics.records.places import MOST_READ, SUFFIX, is_private
from agent_magics.text.brief import brief_line

FILE = "index.json"
PINNED = ".pinned"
_MOST_INDEX = 256 << 20  # bytes
_MOST_TITLE = 100  # characters
# Bytes of newly read records above which the index is written.
_WORTH_WRITING = 1 << 20
_BLOCK, _LONGEST_LINE = 4 << 20, 16 << 20  # bytes that are read at a time, and of a line

_LINE = re.compile(
    rb'^\{"type": ?"(?:RecordBegun|ConversationNamed|SessionConfigured|TurnStarted|TurnCompleted|'
    rb'TurnAborted|TurnFailed)".*\}$',
    re.MULTILINE,
)
# What a line raises that is not of our making: nested deeply, of other types, of an endless time.
_DAMAGED = (ValueError, TypeError, LookupError, OverflowError, RecursionError, OSError)
_ENDS = {"TurnCompleted": "completed", "TurnAborted": "stopped", "TurnFailed": "failed"}


@dataclass(slots=True)
class RecordedConversation:
    """A conversation on disk, as shown in a list.

    Attributes:
        id: for `Agent.resume`.
        title: its name, or the beginning of its first prompt.
        agent: the name of its agent.
        cwd: its workspace.
        notebook: the path of its notebook, "" outside of one.
        started: seconds since the epoch.
        ended: the time of the last write, in seconds since the epoch.
        turns: the number of prompts.
        cost: the known cost in USD.
        costs: that of each day on which turns ended, by local time ("2026-11-23").
        end: how its last turn ended: "completed", "stopped", "failed", "cut short", or "" without a
            turn.
        pinned: whether it is kept by automatic deletion.
        parent: the conversation that it works for as a sub-agent; such ones are not listed.
    """

    id: str
    title: str = ""
    agent: str = ""
    cwd: str = ""
    notebook: str = ""
    started: float = 0.0
    ended: float = 0.0
    turns: int = 0
    cost: float = 0.0
    end: str = ""
    pinned: bool = False
    parent: str = ""
    costs: dict[str, float] = field(default_factory=dict)


_NAMES = [each.name for each in fields(RecordedConversation)]


@dataclass(slots=True)
class _Row:
    """The data of a record up to a size; `open_turn` is the prompt that has not ended yet."""

    size: int
    changed: int
    said: RecordedConversation
    open_turn: str = ""

    def to_json(self) -> list[Any]:
        return [self.size, self.changed, self.open_turn, *asdict(self.said).values()]

    @classmethod
    def from_json(cls, row: Any) -> "_Row":
        size, changed, open_turn, *said = row
        return cls(size, changed, RecordedConversation(*said), open_turn)


def list_conversations(folder: Path) -> list[RecordedConversation]:
    """Return all recorded conversations, the newest first, without those of sub-agents.

    Args:
        folder: the folder of all records.
    """
    listed = (row.said for row in _read_all(folder).values() if not row.said.parent)
    return sorted(listed, key=lambda said: -said.ended)


def sub_agents_of(folder: Path, conversation: str) -> list[Path]:
    """Return the records of a conversation's sub-agents, but those that somebody writes."""
    found = (path for path, row in _read_all(folder).items() if row.said.parent == conversation)
    return [Path(path) for path in found if not is_held(path)]


def _read_all(folder: Path) -> dict[str, _Row]:
    """Return what all records say, by their paths; the index is brought up to date."""
    known = _load(folder / FILE)
    rows: dict[str, _Row] = {}
    read = 0
    for path, found, pinned in records_in(folder):
        row = known.get(path)
        if row is None or (row.size, row.changed) != (found.st_size, found.st_mtime_ns):
            before = row.size if row is not None and row.size <= found.st_size else 0
            row = _read_on(path, row if before else None, found)
            read += found.st_size - before
        row.said.pinned = pinned
        rows[path] = row
    if read > _WORTH_WRITING:
        _save(folder / FILE, rows)
    return rows


def records_in(folder: Path) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Yield each record's path, its `stat`, and whether it is pinned."""
    for day in _folders(folder, 3):
        with suppress(OSError), os.scandir(day) as entries:
            found = {entry.name: entry for entry in entries}
            for name, entry in found.items():
                if name.endswith(SUFFIX):
                    try:  # `suppress` would take a tenth of the time for 10,000 records
                        state = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue
                    if stat.S_ISREG(state.st_mode):  # a FIFO would block whoever opens it
                        yield entry.path, state, name.removesuffix(SUFFIX) + PINNED in found


def _folders(folder: str | Path, depth: int) -> Iterator[str]:
    if depth == 0:
        yield os.fspath(folder)
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _folders(entry.path, depth - 1)


# -- reading a record ------------------------------------------------------------------------------


def _read_on(path: str, row: _Row | None, found: os.stat_result) -> _Row:
    """Return a record's row, reading on where an earlier scan ended."""
    new = _Row(0, 0, RecordedConversation(os.path.basename(path).removesuffix(SUFFIX)))
    row = row or new
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, row.size - 1))
        if row.size and file.read(1) != b"\n":  # half a line stood there, or it was cut off since
            row = new
            file.seek(0)
        for line in _lines_in(file, found.st_size - row.size):
            with suppress(*_DAMAGED):
                _take(row, json.loads(line))
    row.size, row.changed = found.st_size, found.st_mtime_ns
    row.said.ended = found.st_mtime
    return row


def _lines_in(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the whole lines that matter among the next `size` bytes, a block at a time.

    A file may be as large as a disk pretends to be: of one that no record is, nothing is read.
    """
    rest, left = b"", size if file.tell() + size <= MOST_READ else 0
    while left > 0 and (block := file.read(min(_BLOCK, left))):
        left -= len(block)
        whole, end, rest = (rest + block).rpartition(b"\n")
        yield from _LINE.findall(whole + end)
        if len(rest) > _LONGEST_LINE:
            rest = b""


def _take(row: _Row, line: Mapping[str, Any]) -> None:
    said, kind = row.said, line["type"]
    if kind == "RecordBegun":
        said.notebook, said.started = str(line["notebook"]), float(line["at"])
        said.agent, said.cwd = str(line["agent"]), str(line["cwd"])
        said.parent = str(line.get("parent", ""))
    elif kind == "ConversationNamed":
        said.title = str(line["name"])
    elif kind == "SessionConfigured":
        said.agent, said.cwd = str(line["agent"]), str(line["cwd"])
        said.started = said.started or float(line["at"])
    elif kind == "TurnStarted":
        row.open_turn = str(line["turn_id"])
        said.title = said.title or brief_line(str(line["prompt"]), _MOST_TITLE)
        said.turns, said.end = said.turns + 1, "cut short"
    elif line["turn_id"] == row.open_turn:
        said.end, row.open_turn = _ENDS[kind], ""
        cost = line.get("cost") or 0.0
        said.cost += cost
        day = time.strftime("%Y-%m-%d", time.localtime(line["at"]))
        said.costs[day] = said.costs.get(day, 0.0) + cost


# -- the index on disk -----------------------------------------------------------------------------


def _load(path: Path) -> dict[str, _Row]:
    if not is_private(path):
        return {}
    with suppress(OSError, ValueError, TypeError, AttributeError):
        # Only this user can write it, so the check for deep nesting is skipped: half of the time.
        data = json.loads(read_plain(path, _MOST_INDEX))
        if data["columns"] == _NAMES:
            return {name: _Row.from_json(row) for name, row in data["rows"].items()}
    return {}


def _save(path: Path, rows: Mapping[str, _Row]) -> None:
    data = {"columns": _NAMES, "rows": {name: row.to_json() for name, row in rows.items()}}
    with suppress(OSError):
        _remove_unfinished(path)
        descriptor, name = tempfile.mkstemp(prefix=FILE, dir=path.parent)  # mode 0600
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                hold(descriptor)  # so that nobody takes it for a leftover
                json.dump(data, file)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink()
            raise


def _remove_unfinished(path: Path) -> None:
    """Remove what kernels left that were killed while they wrote the index; they hold no lock."""
    for left in path.parent.glob(FILE + "?*"):
        if not is_held(left):
            left.unlink(missing_ok=True)


def matching(
    conversations: Sequence[RecordedConversation], words: Sequence[str]
) -> list[RecordedConversation]:
    """Return the conversations with all of these words in title, agent, notebook or workspace."""
    return [
        each
        for each in conversations
        if all(
            word.casefold()
            in f"{each.title} {each.agent} {each.notebook} {each.cwd} {each.id}".casefold()
            for word in words
        )
    ]
