"""What a journal of changes holds, also when the disk refuses some of it; redo reverts undo."""

import errno
import os
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_magics.file_history.journal import FILE, ChangeJournal
from agent_magics.file_history.states import ABSENT, PathChange, PathState, look_at
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


def test_what_follows_a_line_in_which_a_kernel_was_killed_is_read(journal):
    _add(journal, "one")
    journal.close()
    with open(f"{journal.folder}/{FILE}", "a") as file:
        file.write('{"turn": "two", "titl')
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


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["1", "2", "3", ""]), st.booleans()),
    min_size=1,
    max_size=6,
)


def _write(journal, path, text, *, certain):
    """Write a file, or remove it where the text is "", and record that."""
    contents = {}

    def look():
        return look_at(str(path), keep=lambda digest, data: not contents.update({digest: data}))

    before = look()
    if text:
        path.write_text(text)
    else:
        path.unlink(missing_ok=True)
    changes = [PathChange(str(path), before, look())]
    if before != changes[0].after:
        journal.add("turn", "Go.", changes, contents.get, certain=certain)


MIXED = [("a", "1", True), ("a", "2", False), ("b", "1", False)]


@given(steps=STEPS, doubtful=st.booleans(), rest=st.booleans(), again=st.booleans())
@example(steps=MIXED, doubtful=True, rest=False, again=False)
@example(steps=MIXED, doubtful=True, rest=False, again=True)
@example(
    steps=[("a", "2", True), ("a", "1", False), ("a", "2", True)],
    doubtful=False,
    rest=True,
    again=False,
)
def test_redo_reverts_undo_whatever_it_included(steps, doubtful, rest, again, tmp_path_factory):
    root = tmp_path_factory.mktemp("redo")
    journal = ChangeJournal(str(root / "journal"))

    for name, text, certain in steps:
        _write(journal, root / name, text, certain=certain)
    there = {name: look_at(str(root / name)) for name in "ab"}
    if journal.is_empty:
        return
    way = journal.undo(doubtful=doubtful, rest=rest)
    if not way.obstacles or rest:
        journal.close()
        read = ChangeJournal(journal.folder).load() if again else journal
        redone = read.redo()
        read.close()
        assert not (doubtful and redone.doubtful)
        assert len(read.turns) == 1
    # A file that was restored already, by hand, is not among those.
    restored = [name for name in "ab" if str(root / name) in way.paths]
    assert all(look_at(str(root / name)) == there[name] for name in restored)
