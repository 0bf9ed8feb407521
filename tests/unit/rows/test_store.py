"""Answers on disk: found again, written in groups, and there after kill -9."""

import asyncio
import errno
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.protocol.errors import FatalError
from agent_magics.rows import store
from agent_magics.rows.runs import Runs
from agent_magics.rows.store import AnswerFile, AnswerReader, AnswerStore, Stored, finish
from tests.support.descriptors import none_left

WRITER = """
import asyncio, sys
from pathlib import Path
from agent_magics.rows.store import AnswerStore, Stored, finish

async def main():
    kept = AnswerStore(Path(sys.argv[1]))
    first = int(sys.argv[2])
    for number in range(first, first + 100_000):
        key = number.to_bytes(16)
        kept.keep(key, Stored(b'"answer"', 1, 0.5), lambda *_, n=number: print(n, flush=True))
        await asyncio.sleep(0.0002)

asyncio.run(main())
"""


async def keep(kept, *keys):
    written = [asyncio.get_running_loop().create_future() for _ in keys]
    for key, future in zip(keys, written, strict=True):
        kept.keep(
            key,
            Stored(b'"a"', 3, 0.5),
            lambda *outcome, future=future: future.set_result(outcome[-1]),
        )
    return [await future for future in written]


def found_in(path, keys):
    reader = AnswerReader(path)
    try:
        return reader.find(keys)
    finally:
        reader.close()


def test_a_store_that_cannot_be_opened_leaves_no_file_thread_or_descriptor(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def refuse(path):
        raise OSError(errno.EMFILE, "Too many open files")

    async def run():
        before = threading.active_count()
        with none_left():
            with pytest.raises(FatalError, match="Too many open files") as failed:
                AnswerStore(None)
            # While the error is shown, what it holds is not collected.
            assert failed.value.__traceback__ is not None
        assert threading.active_count() <= before
        assert os.listdir(tmp_path) == []

    monkeypatch.setattr(store, "AnswerReader", refuse)
    asyncio.run(run())


def test_answers_that_a_reader_keeps_from_being_written_keep_no_later_ones_from_it(tmp_path):
    """Only without a log does a reader do so."""
    path = tmp_path / "a.sqlite"
    with closing(AnswerFile(path)) as file, closing(sqlite3.connect(path)) as reader:
        file._connection.execute("PRAGMA journal_mode = DELETE")
        file._connection.execute("PRAGMA busy_timeout = 0")
        file._log = None
        file.write([(b"0", Stored(b'"a"', 1, None))])
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM answers").fetchall()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            file.write([(b"1", Stored(b'"a"', 1, None))])
        reader.rollback()
        file.write([(b"2", Stored(b'"a"', 1, None))])
    assert found_in(path, [b"0", b"1", b"2"]).keys() == {b"0", b"2"}


def test_answers_are_found_by_their_keys(tmp_path):
    async def run():
        kept = AnswerStore(tmp_path / "a.sqlite", "model")
        assert await keep(kept, b"1", b"2", b"2") == [None, None, None]
        found = kept.find([b"1", b"3"])
        await kept.close()
        again = AnswerStore(tmp_path / "a.sqlite")
        later = again.find([b"2"])
        await again.close()
        return found, later, again.newest

    found, later, newest = asyncio.run(run())
    assert list(found) == [b"1"] and found[b"1"][1:4] == (b'"a"', 3, 0.5)
    assert later[b"2"][1] == b'"a"' and newest == 3, "the last one of a key is in its place"


OPEN_AND_CLOSE = """
import sqlite3, sys
sqlite3.connect(sys.argv[1]).execute("SELECT count(*) FROM answers").fetchall()
"""


def test_a_second_look_in_this_process_takes_no_lock_away(tmp_path):
    """The last to close a file removes its log, so it must know of who else has it open."""
    path = tmp_path / "a.sqlite"
    kept = AnswerFile(path)
    kept.write([(b"1", Stored(b'"a"', 1, 0.5))])
    Runs(path).all()
    subprocess.run([sys.executable, "-c", OPEN_AND_CLOSE, path], check=True)
    assert path.with_name("a.sqlite-wal").exists()
    kept.write([(b"2", Stored(b'"a"', 1, 0.5))])
    kept.close()
    assert found_in(path, [b"1", b"2"]).keys() == {b"1", b"2"}


def test_only_the_person_may_read_it(tmp_path):
    AnswerFile(tmp_path / "mine" / "a.sqlite").close()
    assert os.stat(tmp_path / "mine").st_mode & 0o077 == 0
    assert os.stat(tmp_path / "mine" / "a.sqlite").st_mode & 0o077 == 0


def test_many_keys_are_found_at_once(tmp_path):
    file = AnswerFile(tmp_path / "a.sqlite")
    keys = [number.to_bytes(16) for number in range(1800)]
    file.write([(key, Stored(b"1", 0, None)) for key in keys])
    file.close()
    assert len(found_in(tmp_path / "a.sqlite", keys)) == 1800


@given(
    st.lists(st.integers(0, 400), unique=True, max_size=400),
    st.lists(st.lists(st.integers(0, 400), max_size=60), max_size=12),
)
def test_what_is_read_ahead_is_what_is_there(kept, asked):
    """Whatever was kept in whatever order, each look-up finds just the kept answers."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "AHEAD", 50)
        path = Path(folder) / "a.sqlite"
        file = AnswerFile(path)
        file.write([(bytes([n % 256, n // 256]), Stored(b"%d" % n, n, None)) for n in kept])
        file.close()
        reader = AnswerReader(path)
        for numbers in (*asked, kept[:100], kept[100:200], kept[200:]):
            found = reader.find([bytes([n % 256, n // 256]) for n in numbers])
            wanted = {b"%d" % n for n in set(numbers) & set(kept)}
            assert {each[1] for each in found.values()} == wanted
            assert all(found[key][2] == key[0] + 256 * key[1] for key in found)
        reader.close()


@pytest.mark.soak
def test_answers_kept_in_the_order_of_the_rows_are_read_in_one_scan(tmp_path):
    file = AnswerFile(tmp_path / "a.sqlite")
    keys = [number.to_bytes(16) for number in range(20_000)]
    file.write([(key, Stored(b"1", 0, None)) for key in keys])
    file.close()
    reader, looked_up = AnswerReader(tmp_path / "a.sqlite"), 0

    def count(statement):
        nonlocal looked_up
        looked_up += statement.count("X'") + statement.count("x'")

    reader._connection.set_trace_callback(count)
    for start in range(0, len(keys), 500):
        assert len(reader.find(keys[start : start + 500])) == 500
    reader.close()
    assert 0 < looked_up <= 1000


def test_the_oldest_go_when_it_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "MOST_BYTES", 1 << 16)
    monkeypatch.setattr(store, "LOOK_AFTER", 0)
    file = AnswerFile(tmp_path / "a.sqlite")
    for number in range(300):
        file.write([(number.to_bytes(16), Stored(b'"%s"' % (b"x" * 998), 0, None))])
    assert file._bytes() <= 1 << 17
    file.close()
    keys = [(299).to_bytes(16), (0).to_bytes(16)]
    assert list(found_in(tmp_path / "a.sqlite", keys)) == keys[:1]


def test_what_is_no_store_is_one_sentence(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"nonsense" * 1000)

    async def run():
        with pytest.raises(FatalError, match=r"a\.sqlite cannot be used"):
            AnswerStore(path)

    asyncio.run(run())
    assert path.read_bytes().startswith(b"nonsense")


@pytest.mark.soak
def test_what_was_said_to_be_written_is_there_after_kill_9(tmp_path):
    path, told = tmp_path / "a.sqlite", set()
    for first in (0, 100_000, 200_000):
        command = [sys.executable, "-c", WRITER, str(path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            told |= {int(writer.stdout.readline()) for _ in range(500)}
            writer.send_signal(signal.SIGKILL)
            told |= set(map(int, writer.stdout.read().split()))
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            kept = {key for [key] in connection.execute("SELECT key FROM answers")}
        connection.close()
        assert {number.to_bytes(16) for number in told} <= kept


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_stop_while_a_map_closes_loses_no_answer_and_leaves_no_file(steps):
    async def run():
        store = AnswerStore(None)
        written = asyncio.ensure_future(keep(store, b"1"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(finish(store.close))
        for _ in range(2):
            for _ in range(steps):
                await asyncio.sleep(0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        return written.done() and await written, store.path.parent.exists()

    assert asyncio.run(run()) == ([None], False)


def test_a_full_disk_is_told_and_loses_nothing(tmp_path):
    async def run():
        kept = AnswerStore(tmp_path / "a.sqlite")
        (before,) = await keep(kept, b"1")
        thread, connection = kept._thread, kept._file._connection
        pages = thread.submit(lambda: connection.execute("PRAGMA page_count").fetchone()[0])
        limit = f"PRAGMA max_page_count = {pages.result()}"
        thread.submit(lambda: connection.execute(limit).fetchone()).result()
        (error,) = await keep(kept, bytes(100_000))
        found = kept.find([b"1", bytes(100_000)])
        await kept.close()
        return before, error, found

    before, error, found = asyncio.run(run())
    assert before is None and "disk is full" in str(error)
    assert list(found) == [b"1"]


def test_a_file_system_without_shared_memory_keeps_answers_too(tmp_path, monkeypatch):
    def connect(path, **options):
        return sqlite3.Connection(f"file:{path}?vfs=unix-dotfile", uri=True, **options)

    monkeypatch.setattr(store.sqlite3, "connect", connect)
    file = AnswerFile(tmp_path / "a.sqlite")
    file.write([(b"1", Stored(b'"a"', 1, 0.0))])
    file.sync()
    assert list(found_in(tmp_path / "a.sqlite", [b"1"])) == [b"1"] and not file.is_unsynced
    file.close()


def test_a_file_that_cannot_get_a_log_just_now_keeps_answers_too(tmp_path, monkeypatch):
    path, connect = tmp_path / "a.sqlite", sqlite3.connect
    with closing(connect(path, isolation_level=None)) as reader:
        reader.execute(store._SCHEMA)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM answers").fetchall()  # whose lock keeps the log away
        with monkeypatch.context() as impatient:
            options = {"isolation_level": None, "timeout": 0}
            impatient.setattr(store.sqlite3, "connect", lambda path, **_: connect(path, **options))
            file = AnswerFile(path)
        reader.execute("COMMIT")
    file.write([(b"1", Stored(b'"a"', 1, 0.0))])
    file.sync()
    assert list(found_in(path, [b"1"])) == [b"1"] and not file.is_unsynced
    file.close()
