"""Saves files that a person pastes or drops into a cell, in the folder ``pasted`` of the workspace.

Law: a file is never written over another one, nor outside that folder: a name that a page gives
becomes a plain one, and no link is followed. Of one that cannot be saved nothing stays.
"""

import base64
import os
import re
import threading
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_magics.files.beneath import closing_descriptor, create_file, exists_at, open_folder
from agent_magics.kernel.lab.link import Data
from agent_magics.protocol.errors import FatalError, clause

FOLDER = "pasted"
MOST_BYTES = 20 * 1024 * 1024
_MOST_AT_ONCE = 4  # files that are under way
_LONGEST_NAME = 80
_MOST_TRIES = 1_000


class PastedFiles:
    """The files that pages are sending, a part at a time."""

    def __init__(self) -> None:
        self._parts: dict[str, bytearray] = {}
        self._lock = threading.Lock()

    def receive(self, part: Data, workspace: Path) -> dict[str, Any]:
        """Take a part of a file; save the file with its last part.

        Args:
            part: `key` (of the file), `name`, `start` (in bytes), `data` (base64) and `last`, as a
                page sends them.
            workspace: the folder of the agent.

        Returns:
            `path` of the saved file, relative to the workspace; nothing before its last part.

        Raises:
            FatalError: it is too large, or cannot be saved.
        """
        key, name = str(part["key"]), plain_name(str(part["name"]))
        with self._lock:
            while key not in self._parts and len(self._parts) >= _MOST_AT_ONCE:
                del self._parts[next(iter(self._parts))]  # its page has gone
            data = self._parts.setdefault(key, bytearray())
            if part["start"] != len(data):
                del self._parts[key]
                raise FatalError(
                    f"{name} was not saved, since too many files came at once; paste it once more."
                )
            data += base64.b64decode(str(part["data"]), validate=True)
            if len(data) > MOST_BYTES or part["last"]:
                del self._parts[key]
        if len(data) > MOST_BYTES:
            raise FatalError(
                f"{name} is larger than {MOST_BYTES >> 20} MiB, so it was not saved; copy it into "
                "the workspace and write its path."
            )
        if not part["last"]:
            return {}
        return {"path": f"{FOLDER}/{save_new(data, name, workspace)}"}


def plain_name(name: str) -> str:
    """Return a file name of letters, digits, ``.``, ``-`` and ``_`` that is like `name`."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/").rpartition("/")[2]
    stem, dot, ending = re.sub(r"[^\w.-]+", "-", name).strip(".-").rpartition(".")
    if not dot:
        stem, ending = ending, ""
    ending = f".{ending[:10]}" if ending else ""
    room = _LONGEST_NAME - len(ending.encode())
    stem = stem.encode()[:room].decode(errors="ignore")
    return f"{stem or 'file'}{ending}"


def save_new(data: bytes | bytearray, name: str, workspace: Path) -> str:
    """Write a new file into the folder for pasted files, and return its name.

    Raises:
        FatalError: the folder or the file cannot be written.
    """
    place = workspace.resolve() / FOLDER
    try:
        return _saved(data, name, place)
    except OSError as error:
        raise FatalError(f"{name} cannot be saved in {place}: {clause(error)}.") from None


def _saved(data: bytes | bytearray, name: str, place: Path) -> str:
    """Write a new file into a folder; where that fails or is interrupted, nothing new stays."""
    is_new = not os.path.lexists(place)

    def make(missing: str, parent: int) -> None:
        os.mkdir(missing, dir_fd=parent)

    try:
        with closing_descriptor(open_folder(str(place), on_missing=make)) as folder:
            name = _free_name(name, folder)
            _write(data, name, folder)
    except BaseException:
        if is_new:
            with suppress(OSError):  # something is in it now
                place.rmdir()
        raise
    return name


def _write(data: bytes | bytearray, name: str, folder: int) -> None:
    try:
        with os.fdopen(create_file(name, folder, 0o644), "wb") as file:
            file.write(data)
    except FileExistsError:  # another has made it meanwhile
        raise
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def _free_name(name: str, folder: int) -> str:
    """Return `name`, or with a number where there is such a file."""
    path = Path(name)
    for number in range(1, _MOST_TRIES):
        free = name if number == 1 else f"{path.stem}-{number}{path.suffix}"
        if not exists_at(free, folder):
            return free
    raise FatalError(f"There are {_MOST_TRIES} files named {name} in {FOLDER}/; remove some.")
