"""Deletes records of conversations: old ones, those beyond a size, and on demand."""

import shutil
from contextlib import suppress
from pathlib import Path

from agent_magics.files.locks import is_held
from agent_magics.files.retention import old_ones
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.records.index import PINNED, records_in, sub_agents_of
from agent_magics.records.places import PAST, find

KEEP_DAYS = 90  # with records
MOST_BYTES = 2 << 30  # of all records that are not pinned


def remove_old(folder: Path, days: int = KEEP_DAYS, most: int = MOST_BYTES) -> None:
    """Delete records not written on the last `days` days with records, then those beyond `most`.

    The oldest are deleted first. Pinned records and those that a running kernel writes are kept.

    Args:
        folder: the folder of all records.
        days: the number of days on which there were records.
        most: the most bytes of all records that are not pinned.
    """
    loose = {path: found for path, found, pinned in records_in(folder) if not pinned}
    old = set(old_ones(loose, days))
    size = 0
    for path, found in sorted(loose.items(), key=lambda each: -each[1].st_mtime_ns):
        size += found.st_size
        if (path in old or size > most) and not is_held(path):
            remove(Path(path))


def delete(folder: Path, conversation: str) -> None:
    """Delete a conversation with its sub-agents, and their journals for undoing file changes.

    Raises:
        FatalError: there is none, a running kernel uses it, or the disk refused.
    """
    path = find(folder, conversation)
    if is_held(path):
        raise FatalError(
            f"Conversation {path.stem} is open; close it first, or begin another (%agent reset)."
        )
    for each in (*sub_agents_of(folder, path.stem), path):
        remove(each)
        if each.exists():
            raise FatalError(f"{each} cannot be deleted; see whether you may write to its folder.")
        shutil.rmtree(folder.with_name("changes") / each.stem, ignore_errors=True)


def pin(folder: Path, conversation: str, *, pinned: bool = True) -> None:
    """Exclude a conversation from automatic deletion, or include it again.

    Raises:
        FatalError: there is none, or the disk refused.
    """
    mark = find(folder, conversation).with_suffix(PINNED)
    try:
        if pinned:
            mark.touch(mode=0o600)
        else:
            mark.unlink(missing_ok=True)
    except OSError as error:
        raise FatalError(f"{mark} cannot be written: {clause(error)}.") from None


def remove(path: Path) -> None:
    """Delete a record with the files beside it, and its day's folder if that is then empty."""
    with suppress(OSError):
        shutil.rmtree(path.with_suffix(PAST), ignore_errors=True)
        # The record last: what stays of one that is interrupted is found by it.
        for each in (path.with_suffix(PINNED), Path(f"{path}.damaged"), path):
            each.unlink(missing_ok=True)
        path.parent.rmdir()
