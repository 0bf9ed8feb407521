"""The journals of all conversations on disk: a new one, an earlier kernel's, and old ones' end."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from agent_magics.backends.exec.scratch import scratch_folder
from agent_magics.backends.workspace_journal import FILE, ChangeJournal

KEEP_DAYS = 7


def new_journal(parent: Path | None, session_id: str, about: Mapping[str, str]) -> ChangeJournal:
    """Return the journal of a new conversation; nothing is written yet.

    Args:
        parent: the folder of all journals; None keeps it with this process's temporary files.
        session_id: the conversation.
        about: what finds it again.
    """
    if parent is None:
        parent = scratch_folder() / "changes"
    folder = str(parent / session_id)
    return ChangeJournal(folder, about, lambda: remove_old(parent))


def earlier_journal(parent: Path | None, about: Mapping[str, str]) -> ChangeJournal | None:
    """Return the newest journal of the same agent and workspace whose kernel has ended."""
    if parent is None:
        return None
    for folder in _newest_first(parent):
        journal = ChangeJournal(folder, about)
        with suppress(OSError, ValueError):
            if journal.load().about == dict(about) and _is_free(folder):
                return journal
    return None


def remove_old(parent: Path, days: int = KEEP_DAYS) -> None:
    """Delete the journals of kernels that have ended, after some days."""
    limit = time.time() - days * 86_400
    for folder in _newest_first(parent):
        with suppress(OSError):
            if os.stat(f"{folder}/{FILE}").st_mtime < limit and _is_free(folder):
                shutil.rmtree(folder)


def _newest_first(parent: Path) -> Iterator[str]:
    found = []
    with suppress(OSError):
        for name in os.listdir(parent):
            with suppress(OSError):
                path = f"{parent}/{name}"
                found.append((os.stat(f"{path}/{FILE}").st_mtime_ns, path))
    yield from (path for _, path in sorted(found, reverse=True))


def _is_free(folder: str) -> bool:
    """Tell whether no living kernel holds this journal."""
    with open(f"{folder}/{FILE}", "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
