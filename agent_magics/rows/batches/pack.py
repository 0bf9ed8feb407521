"""Writes the file of one batch, line by line, within a batch's limits."""

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from agent_magics.files.locks import open_locked

# Requests and bytes of one batch.
MOST_REQUESTS, MOST_BYTES = 50_000, 200_000_000


class Pack:
    """The file of one batch while it is written; `token` is our name of the batch.

    It is locked until the batch is sent, so that other kernels see that this one is at it.
    """

    def __init__(self, folder: Path) -> None:
        self.token = uuid.uuid4().hex
        self.path = folder / f"{self.token}.jsonl"
        self.keys: list[bytes] = []
        self.size = 0
        self.file: BinaryIO = os.fdopen(open_locked(self.path), "wb")

    def has_room(self, line: bytes) -> bool:
        """Return whether one more line is within the limits of a batch."""
        return len(self.keys) < MOST_REQUESTS and self.size + len(line) <= MOST_BYTES

    def add(self, key: bytes, line: bytes) -> None:
        """Add a row."""
        self.file.write(line)
        self.keys.append(key)
        self.size += len(line)

    def close(self) -> None:
        """Remove the file: it was sent, or will not be."""
        with suppress(OSError):
            self.path.unlink()
        with suppress(OSError):  # a full disk; the text is not needed any more
            self.file.close()
