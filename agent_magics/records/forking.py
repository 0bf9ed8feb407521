"""Forks a recorded conversation: the fork shares the past on disk and has a record of its own.

The past is a hard link to the parent's record and a count of its bytes. A record only grows, so the
parent can be continued or deleted.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agent_magics.files.plain_files import read_plain
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.records import PastPart
from agent_magics.records.places import MOST_READ, part_path
from agent_magics.records.reading import read_first


def share_past(parent: Path, child: Path, before: str = "") -> tuple[PastPart, ...]:
    """Link the past of a conversation to the record of its fork.

    Args:
        parent: the record that is forked; no turn is running in the shared part.
        child: the path of the new record, which does not exist yet.
        before: the turn before which the past ends; "" shares all.

    Returns:
        The parts of the past, for the first line of the new record.

    Raises:
        FatalError: there is no such turn, or the disk refused.
    """
    parts = []
    for path, size in _parts(parent):
        begin = _begin_of(path, size, before) if before else None
        parts.append(PastPart(path.stem, size if begin is None else begin))
        _link(path, part_path(child, path.stem))
        if begin is not None:
            return tuple(parts)
    if before:
        raise FatalError(f"The turn {before!r} is not in the record.")
    return tuple(parts)


def _parts(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files that a record consists of, with the count of used bytes of each."""
    for part in read_first(path.parents[3], path.stem).past:
        yield part_path(path, part.conversation), part.size
    yield path, path.stat().st_size


def _begin_of(path: Path, size: int, turn_id: str) -> int | None:
    """Return the byte offset in a record at which a turn begins."""
    started = rb'^\{"type": ?"TurnStarted"[^\n]*"turn_id": ?"%s"' % re.escape(turn_id.encode())
    found = re.search(started, read_plain(path, MOST_READ)[:size], re.MULTILINE)
    return None if found is None else found.start()


def _link(path: Path, link: Path) -> None:
    try:
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileExistsError):
            try:
                os.link(path, link)
            except PermissionError:
                raise
            except OSError:  # a file system without links
                shutil.copyfile(path, link)
                link.chmod(0o600)
    except OSError as error:
        raise FatalError(f"{link} cannot be written: {clause(error)}.") from None
