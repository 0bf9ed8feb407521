"""Locates the records of conversations: ``<folder>/YYYY/MM/DD/<id>.jsonl``."""

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from agent_magics.config_files.places import state_folder
from agent_magics.protocol.errors import FatalError

SUFFIX = ".jsonl"
PAST = ".past"
MOST_READ = 2 << 30  # bytes of a record
_ID = re.compile(r"[0-9a-f]{4,32}")


def rollout_folder() -> Path:
    """Return the folder in which conversations are recorded (in the platform's state folder)."""
    return state_folder() / "sessions"


def new_path(folder: Path, conversation: str) -> Path:
    """Return the path for the record of a new conversation."""
    return folder / time.strftime("%Y/%m/%d") / (conversation + SUFFIX)


def find(folder: Path, conversation: str) -> Path:
    """Return the record of a conversation.

    Args:
        folder: the folder of all records.
        conversation: its id, or at least the first four characters.

    Raises:
        FatalError: there is none, there are several, or another user may have written it.
    """
    if not _ID.fullmatch(conversation):
        raise FatalError(
            f"{conversation!r} is no conversation's id: those are 4 to 32 of the characters 0-9a-f."
        )
    found = [
        path
        for path in folder.glob(f"*/*/*/{conversation}*{SUFFIX}")
        if _ID.fullmatch(path.name.removesuffix(SUFFIX))
    ]
    if len(found) != 1:
        several = f"{len(found)} conversations begin so; give more of the id"
        problem = several if found else "there is no record of it"
        raise FatalError(f"Conversation {conversation!r}: {problem}.")
    if not is_private(found[0]):
        raise FatalError(f"{found[0]} is not used: others than you may have written it.")
    return found[0]


def part_path(path: Path, conversation: str) -> Path:
    """Return the path at which a record keeps the past that it shares with another one.

    Raises:
        FatalError: `conversation` is no id, so it could name a file elsewhere.
    """
    if not isinstance(conversation, str) or not _ID.fullmatch(conversation):
        raise FatalError(f"{path} is damaged: it names {conversation!r:.80} as its past.")
    return path.with_suffix(PAST) / (conversation + SUFFIX)


def is_private(path: Path) -> bool:
    """Return whether a file belongs to this user and no other one may write it."""
    with suppress(OSError):
        found = os.lstat(path)
        return (
            stat.S_ISREG(found.st_mode)
            and found.st_uid == os.geteuid()
            and not found.st_mode & 0o022
        )
    return False
