"""What a journal of changes holds on disk when the disk refuses some of it."""

import errno
import os
from itertools import count

import pytest

from agent_magics.file_history.journal import FILE, ChangeJournal
from agent_magics.file_history.states import ABSENT, PathChange, PathState
from agent_magics.files.locks import is_held
from tests.support.descriptors import none_left


@pytest.fixture
def journal(tmp_path):
    journal = ChangeJournal(str(tmp_path), {"agent": "a"})
    yield journal
    journal.close()


def _add(journal, name):
    change = PathChange(f"/{name}", ABSENT, PathState("folder", 0o755))
    journal.add(name, name, [change], lambda digest: None)


def _fill_disk(patched):
    """Let every first write write a half, and every second one fail, as on a disk that fills up."""
    real, writes = os.write, count()

    def write(descriptor, data):
        if next(writes) % 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[: len(data) // 2])

    patched.setattr(os, "write", write)


def test_what_a_full_disk_refuses_is_written_with_what_comes_next(journal):
    _add(journal, "one")
    with pytest.MonkeyPatch.context() as patched:
        _fill_disk(patched)
        _add(journal, "two")
        journal.undo()
    assert [turn.id for turn in ChangeJournal(journal.folder).load().turns] == ["one"]
    _add(journal, "three")
    assert [turn.id for turn in ChangeJournal(journal.folder).load().turns] == ["three", "one"]


def test_a_journal_that_a_full_disk_refuses_is_not_kept_open_and_begins_later(journal):
    with none_left(), pytest.MonkeyPatch.context() as patched:
        _fill_disk(patched)
        _add(journal, "one")
    assert is_held(f"{journal.folder}/{FILE}") is False
    _add(journal, "two")
    read = ChangeJournal(journal.folder).load()
    assert read.about == {"agent": "a"}
    assert [turn.id for turn in read.turns] == ["two", "one"]
