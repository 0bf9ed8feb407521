"""Keeps answers on disk, so that each is paid for once: the cache of a user, in SQLite.

An answer is written in a group with others, some 20 ms after it came, on a thread of the
store's own; `fsync` follows at most a second later. So a killed process loses no answer that was
counted, and a power failure those of a second. Nothing of the rows is stored: a key is a digest.
"""

import asyncio
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from statistics import median_low
from typing import Any, ClassVar, NamedTuple, TypeAlias

from agent_magics.config_files.places import state_folder
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.rows.tables.columns import is_answer

# Seconds until a group is written, and until it is on the disk itself.
GROUP, SYNC = 0.02, 1.0
# Bytes of a store, beyond which the oldest tenth goes; answers between two looks at it.
MOST_BYTES, LOOK_AFTER = 8 << 30, 20_000
_MOST_VARIABLES = 500
# Answers that are read ahead.
AHEAD = 4000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, at INTEGER NOT NULL, model TEXT NOT NULL,
    answer BLOB NOT NULL, tokens INTEGER NOT NULL, cost REAL
)
"""
_ADD = "INSERT OR REPLACE INTO answers (key, at, model, answer, tokens, cost) VALUES "
# Rows of one statement: each statement lets other threads run Python, and waits for its own turn.
_ADDED = 32
_FIND = "SELECT key, answer, tokens, cost, number FROM answers WHERE key IN ({marks})"
_NEXT = (
    "SELECT key, answer, tokens, cost, number FROM answers WHERE number > ? ORDER BY number LIMIT ?"
)

_UNUSABLE = (
    "The cache of answers {path} cannot be used ({error}). Where its disk is full, make room: its "
    "answers are paid for. Else choose another file or none (cache=...)."
)


def cache_file() -> Path:
    """Return the file in which answers are kept for this user."""
    return state_folder() / "answers.sqlite"


@contextmanager
def using(path: Path) -> Iterator[None]:
    """Say in one sentence what fails at the file of answers, or beside it.

    Raises:
        FatalError: the file cannot be used.
    """
    try:
        yield
    except (OSError, ValueError, sqlite3.Error) as error:
        raise FatalError(_UNUSABLE.format(path=path, error=short_message(error))) from None


class Stored(NamedTuple):
    """An answer that is to be kept.

    Attributes:
        answer: its JSON.
        tokens, cost: what it took; USD, None where that is not known.
    """

    answer: bytes
    tokens: int
    cost: float | None


# A kept answer as it was read: its key, what `Stored` has, and its number, which counts the answers
# of the file. A million instances of a class would be the garbage collector's work.
Kept: TypeAlias = tuple[bytes, bytes, int, float | None, int]

Then: TypeAlias = Callable[[bytes, Stored, Exception | None], None]
"""What is called for a key and its answer when that is written, or with the error."""


class RecordTable:
    """One more table of the file of answers, which is open only while a statement is executed.

    Args:
        path: the file, made where it is not there.

    Attributes:
        schema: makes the table where it is not there.

    Raises:
        FatalError: the file cannot be used; so do all methods.
    """

    schema: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self._path = path
        self._execute(self.schema)

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        """Execute a statement, and return its rows; waits for the disk."""
        with using(self._path):
            _make(self._path)
            with closing(sqlite3.connect(self._path, isolation_level=None, timeout=30)) as file:
                return file.execute(statement, values).fetchall()


def _make(path: Path) -> None:
    """Make the file where it is not there, for this user only.

    One that is there is not opened: closing it would take away the locks of every connection that
    this process has to it (POSIX), and a second process could then damage it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


class AnswerStore:
    """A file of answers by key; made and used on one event loop.

    Args:
        path: the file, made where it is not there; None takes one that is deleted at the end.
        model: the model's name, for who looks at the file.
        fits: tells whether an answer is one for who asks.

    Attributes:
        path: the file.
        newest: the number of the newest answer when it was opened.

    Raises:
        FatalError: the file cannot be used.
    """

    def __init__(
        self, path: Path | None, model: str = "", fits: Callable[[bytes], bool] = bool
    ) -> None:
        self._fits = fits
        self._folder = None if path else tempfile.TemporaryDirectory(prefix="agent-map-")
        self.path = path or Path(self._folder.name if self._folder else "") / "answers.sqlite"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="agent-answers")
        self._waiting: list[tuple[bytes, Stored]] = []
        self._thens: list[Then] = []  # of each of those
        self._more, self._is_closing = asyncio.Event(), False
        with ExitStack() as failing:
            if self._folder is not None:
                failing.callback(self._folder.cleanup)
            failing.callback(self._thread.shutdown)
            with using(self.path):
                self._file = self._thread.submit(AnswerFile, self.path, model).result()
                failing.callback(lambda: self._thread.submit(self._file.close).result())
                self._reader = AnswerReader(self.path)
            failing.pop_all()
        self._writing = asyncio.create_task(self._write_groups())
        self.newest = self._file.newest

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        """Return the kept answers to some keys; waits for the disk, one thread at a time.

        Raises:
            FatalError: the file cannot be read.
        """
        with using(self.path):
            found = self._reader.find(keys)
        return {key: kept for key, kept in found.items() if self._fits(kept[1])}

    def keep(self, key: bytes, stored: Stored, then: Then) -> None:
        """Keep an answer; `then` is called on the loop."""
        self._waiting.append((key, stored))
        self._thens.append(then)
        self._more.set()

    async def close(self) -> None:
        """Write the rest, and close the file."""
        self._is_closing = True
        self._more.set()
        await self._writing
        try:
            await self._run(self._reader.close)
            await self._run(self._file.close)
        finally:
            self._thread.shutdown()
            if self._folder is not None:
                self._folder.cleanup()

    async def _write_groups(self) -> None:
        """Write what waits in groups, and sync at most a second later."""
        while self._waiting or not self._is_closing:
            try:
                async with asyncio.timeout(SYNC if self._file.is_unsynced else None):
                    await self._more.wait()
            except TimeoutError:
                with suppress(FatalError):  # what is written stays written
                    await self._run(self._file.sync)
                continue
            self._more.clear()
            await asyncio.sleep(0 if self._is_closing else GROUP)
            group, self._waiting = self._waiting, []
            thens, self._thens = self._thens, []
            error: Exception | None = None
            try:
                await self._run(self._file.write, group)
            except FatalError as failure:
                error = failure
            for (key, stored), then in zip(group, thens, strict=True):
                then(key, stored, error)

    async def _run(self, function: Callable[..., Any], *arguments: object) -> object:
        loop = asyncio.get_running_loop()
        with using(self.path):
            return await loop.run_in_executor(self._thread, function, *arguments)


async def finish(close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Close something; raise a cancellation that comes meanwhile after that.

    Else a stopped map would lose answers that are paid for, and leave connections and files.
    """
    closing = asyncio.create_task(close())
    stop: asyncio.CancelledError | None = None
    while not closing.done():
        try:
            await asyncio.wait([closing])
        except asyncio.CancelledError as error:
            stop = error
    closing.result()
    if stop is not None:
        raise stop


class AnswerReader:
    """Finds answers by their keys while others write; on any thread, one at a time.

    The answers of a map were mostly kept in the order of its rows. So where most of some keys have
    answers, those that were kept next are read ahead: that takes a third of the time of look-ups.

    Raises:
        OSError, sqlite3.Error: the file cannot be used; so do all methods.
    """

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
        self._lock = threading.Lock()  # a look-up may still run when a map has ended
        self._ahead: dict[bytes, Kept] = {}
        self._last = 0  # the number of the last answer in it
        self._astray = 0  # look-ups in a row for which nothing useful was read ahead

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        """See `AnswerStore.find`."""
        with self._lock:
            ahead = self._ahead
            found = {key: ahead.pop(key) for key in keys if key in ahead}
            there = self._look_up([key for key in keys if key not in found])
            if 2 * len(there) > len(keys):
                self._astray += 1
                if not self._astray & (self._astray - 1):  # the 1st, 2nd, 4th, 8th ... time
                    ahead.clear()
                    self._last = median_low(kept[-1] for kept in there.values())
                    self._read_on()
            elif found and len(ahead) < AHEAD // 2:
                self._astray = 0
                self._read_on()
            return found | there

    def _look_up(self, keys: Sequence[bytes]) -> dict[bytes, Kept]:
        found: dict[bytes, Kept] = {}
        for start in range(0, len(keys), _MOST_VARIABLES):
            part = keys[start : start + _MOST_VARIABLES]
            question = _FIND.format(marks=",".join("?" * len(part)))
            rows = self._connection.execute(question, part)
            found.update((row[0], row) for row in rows if _is_sound(row))
        return found

    def _read_on(self) -> None:
        rows = self._connection.execute(_NEXT, (self._last, AHEAD)).fetchall()
        if rows:
            self._last = rows[-1][-1]
        self._ahead.update((row[0], row) for row in rows if _is_sound(row))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def _is_sound(row: tuple[object, ...]) -> bool:
    """Tell whether what was read is an answer; not all is, since files may be given."""
    _, answer, tokens, cost, number = row
    counts = isinstance(tokens, int) and isinstance(number, int)
    return counts and (cost is None or isinstance(cost, float | int)) and is_answer(answer)


class AnswerFile:
    """The SQLite file itself; each method runs on one thread, which waits for the disk.

    Attributes:
        is_unsynced: whether something was written since the last `fsync`.
        newest: the number of the newest answer when the file was opened.

    Raises:
        OSError, sqlite3.Error: the file cannot be used; so do all methods.
    """

    def __init__(self, path: Path, model: str = "") -> None:
        _make(path)
        self._model = model
        self._log: Path | None = path.with_name(f"{path.name}-wal")
        self._synced, self.is_unsynced = time.monotonic(), False
        self._until_look = 0
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        try:
            self.newest = self._set_up()
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self) -> int:
        """Make the table where there is none, and return the number of the newest answer."""
        # Not every file system can share the memory that the log needs; then there is none.
        mode = ""
        with suppress(sqlite3.OperationalError):
            mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        self._log = self._log if mode == "wal" else None
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA wal_autocheckpoint = 8000")
        self._connection.execute("PRAGMA cache_size = -32000")
        self._connection.execute(_SCHEMA)
        newest = self._connection.execute("SELECT max(number) FROM answers").fetchone()[0]
        return newest or 0

    def write(self, answers: Sequence[tuple[bytes, Stored]]) -> None:
        """Write answers, all or none; over one that is there, which was none for who asked."""
        at, model = int(time.time()), self._model
        with self._transaction():
            for start in range(0, len(answers), _ADDED):
                part = answers[start : start + _ADDED]
                values = [each for key, stored in part for each in (key, at, model, *stored)]
                marks = ",".join(["(?,?,?,?,?,?)"] * len(part))
                self._connection.execute(_ADD + marks, values)
        self.is_unsynced = True
        self._until_look -= len(answers)
        if self._until_look < 0:
            self._until_look = LOOK_AFTER
            self._remove_old()
        if time.monotonic() - self._synced > SYNC:
            self.sync()

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        if self._log is not None:  # without a log, each transaction waits for the disk
            descriptor = os.open(self._log, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._synced, self.is_unsynced = time.monotonic(), False

    def close(self) -> None:
        """Close the file, synced."""
        self._connection.close()

    def _bytes(self) -> int:
        used = (self._connection.execute(f"PRAGMA {what}").fetchone()[0] for what in _PAGES)
        count, free, size = used
        return int((count - free) * size)

    def _remove_old(self) -> None:
        """Remove the oldest tenth of the answers where the file is too large."""
        if self._bytes() <= MOST_BYTES:
            return
        low, high = self._connection.execute(
            "SELECT min(number), max(number) FROM answers"
        ).fetchone()
        with self._transaction():
            end = low + (high - low) // 10
            self._connection.execute("DELETE FROM answers WHERE number <= ?", (end,))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk may have ended it already
                self._connection.execute("ROLLBACK")
            raise


_PAGES = ("page_count", "freelist_count", "page_size")
