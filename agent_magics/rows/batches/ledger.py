"""Lists the batches that were sent and not taken in yet, in the SQLite file of the answers.

A batch is written down before it is sent, with the keys of its rows. So a kernel that ends at any
moment loses none: the next call finds it by what it wrote down.
"""

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

from agent_magics.files.locks import is_held
from agent_magics.rows.store import AnswerReader, RecordTable, using

KEY_BYTES = 16
# Seconds after which a file that nobody has locked is in nobody's use.
UNUSED = 60

_SCHEMA = """
CREATE TABLE IF NOT EXISTS batches (
    token TEXT PRIMARY KEY, at INTEGER NOT NULL, server TEXT NOT NULL, wire TEXT NOT NULL,
    model TEXT NOT NULL, map BLOB NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
    completed INTEGER NOT NULL, rows INTEGER NOT NULL, keys BLOB NOT NULL
)
"""


class Sent(NamedTuple):
    """A batch that was sent, or was about to be.

    Attributes:
        token: our name of it.
        at: when, in seconds since the epoch.
        server: the server's address.
        wire: the wire API of its requests.
        model: the model's name.
        map: the digest of what all its rows share.
        id: its id at the provider; "" before that is known.
        state: the state that was last seen; "sending" before there is one.
        completed: the rows that were answered when that was seen.
        rows: the number of its rows.
    """

    token: str
    at: int
    server: str
    wire: str
    model: str
    map: bytes
    id: str = ""
    state: str = "sending"
    completed: int = 0
    rows: int = 0


class Ledger(RecordTable):
    """The batches of one file of answers; each method waits for the disk.

    Args:
        path: the file of answers.

    Raises:
        FatalError: the file cannot be used; so do all methods.
    """

    schema = _SCHEMA

    def folder(self) -> Path:
        """Return the folder of files that are sent and fetched; made if it is missing."""
        folder = self._path.with_name(f"{self._path.name}.batches")
        with using(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def add(self, sent: Sent, keys: Sequence[bytes]) -> None:
        """Write down a batch that is about to be sent."""
        row = (*sent[:-1], len(keys), b"".join(keys))
        self._execute(f"INSERT INTO batches VALUES ({','.join('?' * len(row))})", row)

    def update(self, token: str, batch_id: str, state: str, completed: int) -> None:
        """Write down what is new about a batch."""
        self._execute(
            "UPDATE batches SET id = ?, state = ?, completed = ? WHERE token = ?",
            (batch_id, state, completed, token),
        )

    def remove(self, token: str) -> None:
        """Forget a batch whose results were taken in, and remove its files."""
        self._execute("DELETE FROM batches WHERE token = ?", (token,))
        for path in self.folder().glob(f"{token}.*"):
            with suppress(OSError):
                path.unlink()

    def sweep(self) -> None:
        """Remove files of no batch, which ended kernels have left; one in use is locked or new."""
        known = {sent.token for sent in self.all()}
        for path in self.folder().iterdir():
            if path.name.partition(".")[0] in known:
                continue
            with suppress(OSError):  # another kernel is done with it, or it is somebody else's
                if path.stat().st_mtime < now() - UNUSED and is_held(path) is False:
                    path.unlink()

    def is_being_sent(self, token: str) -> bool:
        """Return whether a kernel may have the file of a batch open, to send it.

        Where the lock cannot be known (a file system without locks) the file itself tells it, since
        rows that are taken for unsent would be paid for twice.
        """
        path = self.folder() / f"{token}.jsonl"
        return path.exists() and is_held(path) is not False

    def all(self) -> list[Sent]:
        """Return the batches that were not taken in yet, the oldest first."""
        columns = ", ".join(Sent._fields)
        return list(
            starmap(Sent, self._execute(f"SELECT {columns} FROM batches ORDER BY at, token"))
        )

    def keys(self, token: str) -> list[bytes]:
        """Return the keys of a batch's rows."""
        found = self._execute("SELECT keys FROM batches WHERE token = ?", (token,))
        keys: bytes = found[0][0] if found else b""
        return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]

    def is_answered(self, token: str) -> bool:
        """Return whether all rows of a batch have an answer in the file."""
        keys = self.keys(token)
        with using(self._path), closing(AnswerReader(self._path)) as reader:
            return len(reader.find(keys)) == len(set(keys))


def now() -> int:
    """Return the present time in whole seconds since the epoch."""
    return int(time.time())
