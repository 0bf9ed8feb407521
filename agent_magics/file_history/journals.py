"""Opens, finds and removes the journals of conversations on disk."""

import os
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from agent_magics.exec.temporary_files import scratch_folder
from agent_magics.file_history.journal import FILE, ChangeJournal
from agent_magics.files.locks import is_held
from agent_magics.files.retention import old_ones
from agent_magics.files.trusted_imports import is_trusted

KEEP_DAYS = 7


def new_journal(parent: Path | None, session_id: str, about: Mapping[str, str]) -> ChangeJournal:
    """Return the journal of a conversation; a new one writes nothing yet.

    Args:
        parent: the folder of all journals; None keeps it with this process's temporary files.
        session_id: the conversation.
        about: metadata by which it is found again.
    """
    if parent is None:
        parent = scratch_folder() / "changes"
    journal = ChangeJournal(str(parent / session_id), about, lambda: remove_old(parent))
    if _is_private(journal.folder) and is_trusted(str(parent)):  # the conversation is being resumed
        with suppress(OSError, ValueError):
            journal.load().opened()
    return journal


def share_changes(parent: Path, conversation: str, fork: str, turns: Collection[str]) -> None:
    """Begin the journal of a fork with a copy of what the turns that it shares have changed."""
    if _is_private(f"{parent}/{conversation}") and is_trusted(str(parent)):
        shared = ChangeJournal(f"{parent}/{fork}")
        with suppress(OSError, ValueError):  # it begins empty, and says so where it is needed
            shared.share(f"{parent}/{conversation}", turns)
        shared.close()


def earlier_journal(parent: Path | None, about: Mapping[str, str]) -> ChangeJournal | None:
    """Return the newest journal of the same agent and workspace whose kernel has ended.

    A journal that a command or another user may have written is skipped, since an undo applies its
    content.
    """
    if parent is None or not is_trusted(str(parent)):
        return None
    for folder in filter(_is_private, _newest_first(parent)):
        journal = ChangeJournal(folder, about)
        with suppress(OSError, ValueError):
            if journal.load().about == dict(about) and is_held(f"{folder}/{FILE}") is False:
                return journal
    return None


def remove_old(parent: Path, days: int = KEEP_DAYS) -> None:
    """Delete the journals of ended kernels that are older than `days` days with any write."""
    for file in old_ones((f"{folder}/{FILE}" for folder in _newest_first(parent)), days):
        if is_held(file) is False:
            shutil.rmtree(os.path.dirname(file), ignore_errors=True)


def _newest_first(parent: Path) -> Iterator[str]:
    found = []
    with suppress(OSError):
        for name in os.listdir(parent):
            with suppress(OSError):
                path = f"{parent}/{name}"
                found.append((os.stat(f"{path}/{FILE}").st_mtime_ns, path))
    yield from (path for _, path in sorted(found, reverse=True))


def _is_private(folder: str) -> bool:
    """Tell whether a journal belongs to this user, and no other user can write it."""
    with suppress(OSError):
        found = [os.lstat(path) for path in (folder, f"{folder}/{FILE}")]
        kinds = [stat.S_IFMT(each.st_mode) for each in found]
        return kinds == [stat.S_IFDIR, stat.S_IFREG] and all(
            each.st_uid == os.geteuid() and not each.st_mode & 0o022 for each in found
        )
    return False
