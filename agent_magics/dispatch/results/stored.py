"""Stores results that cannot be read at once under short names: ``@r1``, ``@r2``, …

Where a tool takes a path, a name resolves to a file that is written on demand; where a tool takes a
value, it stands for the stored object itself, and ``_r1`` does in code. Names belong to one
conversation and are never used twice in it.
"""

import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent_magics.approval.read_rules import ReadRules
from agent_magics.dispatch.results.sources import StoredText, TextSource, Value
from agent_magics.dispatch.results.values import describe_value, estimate_size, format_size
from agent_magics.exec.temporary_files import remove_own
from agent_magics.protocol.errors import RespondToModel, clause

MEMORY_LIMIT = 256 * 1024 * 1024  # characters and bytes of all results of a conversation
DISK_LIMIT = 4 * 1024 * 1024 * 1024  # bytes
# A value above this is not written out as text: that would take minutes and serve nobody.
TEXT_LIMIT = 64 * 1024 * 1024
_NAME = re.compile(r"@r\d+")
_MOST_NAMED = 10


@dataclass(slots=True)
class StoredResult:
    """One stored result.

    Attributes:
        source: None once only the file is left, and where the result was dropped.
        path: the file, where there is one.
        written: the source's size when the file was written.
        bytes: the file's size.
        gone: what it was, where it was kept in a kernel that has ended.
        reads, known: as in its `Origin`; of several readings, what forbade reading each time.
        hooks: what the hooks say of the output that it belongs to: "" where they let it pass,
            "waiting" before they have, or "withheld".
    """

    source: TextSource | None
    path: Path | None = None
    written: int = -1
    bytes: int = 0
    reads: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    gone: str = ""
    hooks: Literal["", "waiting", "withheld"] = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of an output that names a result.

    Attributes:
        reads: the files whose text may be in it, as absolute paths; a folder ends in a slash.
        held: takes the name, where hooks have yet to see the output: nobody reads the result
            before `settle`.
        known: the patterns of the rules that forbade reading then; None stands for those of now.
    """

    reads: tuple[str, ...] = ()
    held: list[str] | None = None
    known: tuple[str, ...] | None = None


_UNKNOWN = Origin()


def is_handle(path: str) -> bool:
    """Return whether `path` has the form of a stored result's name."""
    return _NAME.fullmatch(str(path)) is not None  # a Path in a call by hand


class HandleStore:
    """The stored results of one conversation; thread-safe.

    Beyond `memory_limit` the oldest texts are moved to disk and the oldest values released; the
    newest is always held. Beyond `disk_limit` the oldest files are removed. Access to a dropped
    result is an error that says so.

    Args:
        memory_limit: characters of all texts and estimated bytes of all values together.
        disk_limit: bytes of all files together.
        parent: returns the folder in which the folder for the files is made; None means the
            system's folder for temporary files.

    Attributes:
        on_keep: called with each result that gets a name, once hooks have let it pass; with one
            that they withhold, too, which has no source then.
        read_rules: returns the present rules on reading files: what they forbid is withheld in
            results, too.
    """

    def __init__(
        self,
        memory_limit: int = MEMORY_LIMIT,
        disk_limit: int = DISK_LIMIT,
        parent: Callable[[], Path] | None = None,
    ) -> None:
        self._memory_limit = memory_limit
        self._disk_limit = disk_limit
        self._parent = parent
        self.read_rules: Callable[[], ReadRules] = ReadRules
        self.on_keep: Callable[[str, StoredResult], None] = lambda name, entry: None
        self._entries: dict[str, StoredResult] = {}
        self._last = 0  # the number of the last name
        self._names_by_id: dict[int, str] = {}
        self._let_go: list[str] = []
        self._folder: Path | None = None
        self._remove_folder: weakref.finalize[[Path, int], HandleStore] | None = None
        self._lock = threading.Lock()

    def keep(self, text: str | TextSource, origin: Origin = _UNKNOWN) -> str:
        """Store `text` and return its name; the same source keeps the name it has."""
        source = StoredText(text) if isinstance(text, str) else text
        with self._lock:
            same = (name for name, entry in self._entries.items() if entry.source == source)
            return self._named(next(same, ""), source, origin)

    def keep_value(self, value: object, origin: Origin = _UNKNOWN) -> str:
        """Store a reference to `value` and return its name; the same object keeps its name."""
        with self._lock:
            name = self._names_by_id.get(id(value), "")
            source = self._entries[name].source if name else None
            if not (isinstance(source, Value) and source.is_kept and source.get() is value):
                name, source = "", Value(value)
            name = self._names_by_id[id(value)] = self._named(name, source, origin)
            return name

    def settle(self, held: list[str], passes: bool) -> None:
        """Let results be read from now on, or never, as hooks judged the output that names them."""
        with self._lock:
            for name in dict.fromkeys(held):
                entry = self._entries.get(name)  # None where the store was closed
                if entry is None or (passes and entry.hooks != "waiting"):
                    continue  # an earlier output has named it, too
                entry.hooks = "" if passes else "withheld"
                if not passes and isinstance(entry.source, (StoredText, Value)):
                    entry.source = None  # that of a command stays, so that it keeps the name
                if not passes and entry.path is not None:
                    entry.path.unlink(missing_ok=True)
                self.on_keep(name, entry)

    def lend(self, name: str, other: "HandleStore") -> str:
        """Store a result in another store as well, and return its name there.

        Args:
            name: its name here.
            other: the store of another conversation.

        Raises:
            RespondToModel: there is no such result, or a rule forbids reading it.
        """
        value, entry = self.value_of(name), self._entries[name]
        keep = other.keep if isinstance(value, str) else other.keep_value
        return keep(value, Origin(entry.reads, known=entry.known))

    def reads_of(self, name: str) -> tuple[str, ...]:
        """Return what a result may be read from; nothing where there is none of that name."""
        entry = self._entries.get(name)
        return entry.reads if entry is not None else ()

    def take_let_go(self) -> list[str]:
        """Return the names of the values that were released since the last call."""
        with self._lock:
            names, self._let_go = self._let_go, []
        return names

    def value_of(self, name: str) -> Any:
        """Return the stored object itself; a stored text as a str.

        Raises:
            RespondToModel: there is no such result, or it was dropped.
        """
        with self._lock:
            entry = self._find(name)
            if isinstance(entry.source, Value):
                return self._checked_value(name, entry.source)
            if entry.source is not None:
                return "".join(entry.source.pieces())
        # Not `read_text`, which makes one line break of each kind.
        return self.path_of(name).read_bytes().decode("utf-8")

    def path_of(self, name: str) -> Path:
        """Return a file (mode 0600) that holds the result as it is now.

        Raises:
            RespondToModel: there is no such result, it was dropped, or the disk is full.
        """
        with self._lock:
            entry = self._find(name)
            if isinstance(entry.source, Value):
                self._check_writable(name, entry.source)
            if entry.source is not None and entry.written != entry.source.size:
                self._write(name, entry)
                self._shrink_disk(keep=entry)
            if entry.gone:
                raise RespondToModel(
                    f"{name} ({entry.gone}) was kept in a kernel that has ended, and is gone. Run "
                    f"the call again; {self._known()}."
                )
            if entry.path is None:
                raise RespondToModel(
                    f"{name} was dropped: the kept results took more than "
                    f"{self._disk_limit / 1024**3:g} GiB, and it was the oldest. Run the call "
                    f"again; {self._known()}."
                )
            return entry.path

    def close(self) -> None:
        """Drop all results and remove their files."""
        with self._lock:
            self._entries.clear()
            self._names_by_id.clear()
            self._let_go.clear()
            if self._remove_folder is not None:
                self._remove_folder()
            self._folder = self._remove_folder = None

    # -- finding ---------------------------------------------------------------------------------

    def _named(self, name: str, source: TextSource, origin: Origin) -> str:
        """Note where a result comes from that an output names; "" stands for a new one."""
        is_new = not name
        if is_new:
            self._last += 1
            name = f"@r{self._last}"
            self._entries[name] = StoredResult(source)
            self._shrink()
        entry = self._entries[name]
        if origin.reads:
            known = self.read_rules().forbidden if origin.known is None else origin.known
            entry.known = tuple(each for each in known if each in entry.known or not entry.reads)
            entry.reads = tuple(dict.fromkeys((*entry.reads, *origin.reads)))
        if origin.held is not None:
            origin.held.append(name)
            entry.hooks = "waiting" if is_new else entry.hooks
        elif is_new:
            self.on_keep(name, entry)
        return name

    def restore(
        self,
        name: str,
        source: TextSource | None,
        what: str,
        reads: Iterable[str] = (),
        known: Iterable[str] = (),
    ) -> None:
        """Take up a result of an earlier kernel; without a source only that it is gone."""
        with self._lock:
            if is_handle(name):
                self._last = max(self._last, int(name[2:]))
                gone = what or "a long text" if source is None else ""
                self._entries[name] = StoredResult(
                    source, reads=tuple(map(str, reads)), known=tuple(map(str, known)), gone=gone
                )

    @property
    def gone(self) -> Mapping[str, str]:
        """What went with an earlier kernel, by name."""
        return {name: entry.gone for name, entry in self._entries.items() if entry.gone}

    def _find(self, name: str) -> StoredResult:
        entry = self._entries.get(name)
        if entry is None:
            raise RespondToModel(f"There is no {name} in this conversation; {self._known()}.")
        if entry.hooks:
            raise RespondToModel(f"{name} is not shown: a hook has not let it pass.")
        if entry.reads and self.read_rules().forbids_result(entry.reads, entry.known):
            raise RespondToModel(
                f"{name} is not shown: a rule forbids reading what it was read from."
            )
        return entry

    def _checked_value(self, name: str, source: Value) -> Any:
        value = source.get()
        if value is None:
            raise RespondToModel(
                f"{name} is gone: the kept results took more than "
                f"{format_size(self._memory_limit)}, it was the oldest, and no variable holds it. "
                f"Run the call again; {self._known()}."
            )
        return value

    def _check_writable(self, name: str, source: Value) -> None:
        value = self._checked_value(name, source)
        size = estimate_size(value)
        if size > TEXT_LIMIT:
            raise RespondToModel(
                f"{name} ({describe_value(value)}) is too large to be written out as text; pass "
                f"{name} where a tool takes a value, or use _{name[1:]} in python code."
            )

    # -- keeping within the limits ----------------------------------------------------------------

    def _shrink(self) -> None:
        held = [e.source.in_memory for e in self._entries.values() if e.source is not None]
        excess = sum(held) - self._memory_limit
        newest = next(reversed(self._entries))
        for name, entry in self._entries.items():
            if excess <= 0:
                break
            if entry.source is None or entry.source.grows():
                continue
            if isinstance(entry.source, Value):
                if name != newest and entry.source.is_kept:
                    excess -= entry.source.in_memory
                    entry.source.let_go()
                    self._let_go.append(name)
                continue
            # Where the disk takes no more, memory goes on holding it: better than losing it.
            with suppress(RespondToModel):
                if entry.written != entry.source.size:
                    self._write(name, entry)
                excess -= entry.source.in_memory
                entry.source = None
        self._shrink_disk()

    def _shrink_disk(self, keep: StoredResult | None = None) -> None:
        excess = sum(entry.bytes for entry in self._entries.values()) - self._disk_limit
        for entry in self._entries.values():
            if excess <= 0:
                break
            if entry.path is not None and entry is not keep:
                excess -= entry.bytes
                entry.path.unlink(missing_ok=True)
                entry.path, entry.bytes, entry.written = None, 0, -1

    def _write(self, name: str, entry: StoredResult) -> None:
        assert entry.source is not None
        size = entry.source.size  # read first: text that arrives meanwhile is written next time
        try:
            path = self._own_folder() / f"{name[1:]}.txt"
            path.unlink(missing_ok=True)
            path.touch(mode=0o600, exist_ok=False)
            with path.open("wb") as file:
                for piece in entry.source.pieces():
                    file.write(piece.encode("utf-8", "replace"))
                entry.bytes = file.tell()
        except OSError as error:
            raise RespondToModel(f"{name} cannot be written to a file: {clause(error)}.") from None
        entry.path, entry.written = path, size

    def _own_folder(self) -> Path:
        if self._folder is None:
            parent = None if self._parent is None else self._parent()
            self._folder = Path(tempfile.mkdtemp(prefix="results-", dir=parent))
            self._remove_folder = weakref.finalize(self, remove_own, self._folder, os.getpid())
        return self._folder

    def _known(self) -> str:
        names = [n for n, e in self._entries.items() if _is_there(e)]
        if not names:
            return "no result has been kept so far"
        earlier = "… " if len(names) > _MOST_NAMED else ""
        return f"there are: {earlier}{', '.join(names[-_MOST_NAMED:])}"


def _is_there(entry: StoredResult) -> bool:
    if entry.hooks:
        return False
    if isinstance(entry.source, Value):
        return entry.source.get() is not None
    return entry.source is not None or entry.path is not None
