"""Writing recordings: whole lines only, several writers, and a file that is replaced at once."""

import fcntl
import json
import multiprocessing
import os
import resource
import threading

import pytest

from agent_magics.files import locks
from agent_magics.models.recordings import writing as recording_file
from agent_magics.models.recordings.format import (
    Exchange,
    Header,
    RecordedAnswer,
    exchange_line,
    read_recording,
)
from agent_magics.models.recordings.writing import (
    append_exchange,
    recording_beside_notebook,
    rewrite,
    start_recording,
)
from agent_magics.protocol.errors import FatalError


def exchange(prompt, number=1, sse="x" * 5000):
    return Exchange(prompt, number, RecordedAnswer(sse))


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "deep" / "r.jsonl"
    assert start_recording(file, Header("test")) == ""
    return file


def prompts(path):
    return [each.prompt for each in read_recording(path).exchanges]


def test_what_could_not_be_read_back_is_not_written(path, monkeypatch):
    append_exchange(path, exchange("a"))
    line = exchange_line(exchange("b"))
    monkeypatch.setattr(recording_file, "MOST_BYTES", path.stat().st_size + len(line))
    before = path.read_bytes()
    with pytest.raises(FatalError, match=r"is full: .* record to another file"):
        append_exchange(path, exchange("b"))
    assert path.read_bytes() == before
    assert start_recording(path, Header("test")) == ""
    monkeypatch.setattr(recording_file, "MOST_BYTES", len(before))
    with pytest.raises(FatalError, match="is full"):
        start_recording(path, Header("test"))


def test_a_second_start_changes_nothing(path):
    append_exchange(path, exchange("a"))
    before = path.read_bytes()
    assert start_recording(path, Header("other")) == ""
    assert path.read_bytes() == before


def test_a_file_that_is_something_else_is_not_written_to(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\n", encoding="utf-8")
    with pytest.raises(FatalError, match="not JSON"):
        start_recording(path, Header("hand"))
    assert path.read_text(encoding="utf-8") == "my notes\n"


def test_a_recording_that_a_full_disk_cuts_off_as_it_begins_can_begin_later(tmp_path):
    path, limits = tmp_path / "r.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(FatalError, match="Cannot write the recording"):
            start_recording(path, Header("hand"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b""
    assert start_recording(path, Header("hand")) == ""
    append_exchange(path, exchange("a"))
    assert prompts(path) == ["a"]


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(FatalError, match=r"Cannot write the recording .*: Is a directory"):
        start_recording(tmp_path, Header("hand"))
    with pytest.raises(FatalError, match=r"Cannot write the recording .*gone\.jsonl: No such file"):
        append_exchange(tmp_path / "gone.jsonl", exchange("a"))


def test_after_half_a_line_the_next_one_is_whole(path):
    append_exchange(path, exchange("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + exchange_line(exchange("lost", sse="y" * 100_000))[:90_000])
    assert "breaks off" in start_recording(path, Header("test"))
    append_exchange(path, exchange("b"))
    assert prompts(path) == ["a", "b"]
    assert read_recording(path).notice == ""
    assert path.read_bytes().startswith(whole)


def test_a_last_line_without_its_end_stays(path):
    line = exchange_line(exchange("by hand"))
    path.write_bytes(path.read_bytes() + line.rstrip())
    append_exchange(path, exchange("b"))
    assert prompts(path) == ["by hand", "b"]


# -- several writers -------------------------------------------------------------------------------


def write_many(path, name, count):
    start_recording(path, Header(name))
    for number in range(1, count + 1):
        append_exchange(path, exchange(name, number, sse=name * 20_000))


@pytest.mark.soak
def test_threads_and_processes_write_to_one_file(tmp_path):
    path = tmp_path / "r.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [
        *(context.Process(target=write_many, args=(path, name, 15)) for name in ("p", "q")),
        *(threading.Thread(target=write_many, args=(path, name, 15)) for name in ("t", "u")),
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = [(each.prompt, each.number) for each in read_recording(path).exchanges]
    for name in "pqtu":
        assert [number for prompt, number in found if prompt == name] == list(range(1, 16))


@pytest.mark.soak
def test_a_file_that_is_replaced_while_others_write_loses_nothing(path, monkeypatch):
    monkeypatch.setattr(recording_file, "LONGEST_WAIT", 100.0)  # who comes next is chance

    def trim():
        for _ in range(30):
            rewrite(path, lambda old: [each.line for each in old.exchanges if each.prompt == "-"])

    writers = [threading.Thread(target=write_many, args=(path, name, 30)) for name in "ab"]
    writers += [threading.Thread(target=write_many, args=(path, "-", 30))]
    trimmer = threading.Thread(target=trim)
    for thread in (*writers, trimmer):
        thread.start()
    for thread in (*writers, trimmer):
        thread.join()
    found = [(each.prompt, each.number) for each in read_recording(path).exchanges]
    for name in "ab":
        assert [number for prompt, number in found if prompt == name] == list(range(1, 31))
    assert [file.name for file in path.parent.iterdir()] == ["r.jsonl"]


def test_a_file_that_is_replaced_between_opening_and_locking_is_opened_again(path, monkeypatch):
    replaced, lock = [], fcntl.flock

    def replace_first(file, how):
        if not replaced:
            replaced.append(path.with_suffix(".new"))
            replaced[0].write_bytes(path.read_bytes())
            replaced[0].replace(path)
        lock(file, how)

    monkeypatch.setattr(locks.fcntl, "flock", replace_first)
    append_exchange(path, exchange("a"))
    assert replaced
    assert prompts(path) == ["a"]


def test_who_does_not_let_go_of_a_file_is_not_waited_for(path, monkeypatch):
    monkeypatch.setattr(recording_file, "LONGEST_WAIT", 0.05)
    before = path.read_bytes()
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(FatalError, match=r"another kernel has held it for 0\.05 seconds"):
            append_exchange(path, exchange("a"))
    assert path.read_bytes() == before
    append_exchange(path, exchange("a"))
    assert prompts(path) == ["a"]


# -- replaced --------------------------------------------------------------------------------------


def lines_of(*names):
    return lambda old: [each.line for each in old.exchanges if each.prompt in names]


@pytest.fixture
def mixed(path):
    """A file with lines that must stay as they are, byte for byte."""
    odd = [b'{"kind": "comment"}', b"", b'{ "prompt" :"odd","number":1, "reply":[] }\r']
    lines = [exchange_line(exchange(name)).rstrip() for name in ("a", "b", "a")]
    path.write_bytes(path.read_bytes() + b"\n".join([lines[0], *odd, *lines[1:]]))
    return path


def test_exactly_the_lines_that_were_named_are_replaced(mixed):
    old = mixed.read_bytes().split(b"\n")
    backup = mixed.with_suffix(".bak")
    mixed.chmod(0o640)
    count = rewrite(mixed, lines_of("a"), [exchange("new", 1), exchange("new", 2)], backup=backup)
    assert count == 2
    new = [exchange_line(exchange("new", number)).rstrip() for number in (1, 2)]
    assert mixed.read_bytes().split(b"\n") == [old[0], *new, *old[2:6], b""]
    assert backup.read_bytes().split(b"\n") == old
    assert mixed.stat().st_mode & 0o777 == 0o640


def test_what_replaces_nothing_comes_last(mixed):
    rewrite(mixed, lines_of(), [exchange("new")])
    assert prompts(mixed) == ["a", "odd", "b", "a", "new"]


def test_nothing_to_do_writes_nothing(mixed):
    before = mixed.stat()
    assert rewrite(mixed, lines_of("z"), backup=mixed.with_suffix(".bak")) == 0
    assert mixed.stat() == before
    assert not mixed.with_suffix(".bak").exists()


def test_a_new_header(mixed):
    rewrite(mixed, lines_of("b"), header=lambda old, out: Header(f"{old.header.by} {len(out)}"))
    assert read_recording(mixed).header == Header("test 1")
    assert prompts(mixed) == ["a", "odd", "a"]


def test_a_failure_leaves_the_file_as_it_was(mixed, monkeypatch):
    before = mixed.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recording_file.os, "replace", fail)
    with pytest.raises(FatalError, match="No space left"):
        rewrite(mixed, lines_of("a"), [exchange("new")])
    assert mixed.read_bytes() == before
    assert [file.name for file in mixed.parent.iterdir()] == ["r.jsonl"]


# -- what a model may have put in its place --------------------------------------------------------

WRITES = {
    "start": lambda path: start_recording(path, Header("test")),
    "append": lambda path: append_exchange(path, exchange("a")),
    "rewrite": lambda path: rewrite(path, lines_of("a"), [exchange("b")]),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("kind", ["link", "dangling", "relative", "pipe"])
def test_only_a_regular_file_is_written_to(mixed, tmp_path, write, kind):
    place, before = tmp_path / "place.jsonl", mixed.read_bytes()
    outside = tmp_path / "outside"
    outside.mkdir()
    target = {"link": mixed, "dangling": outside / "new", "relative": mixed.name}
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(target[kind])
    with pytest.raises(FatalError, match=r"no regular file|a symbolic link"):
        write(place)
    assert mixed.read_bytes() == before and not list(outside.iterdir())


def test_a_copy_of_the_old_file_goes_through_no_link(mixed, tmp_path):
    other, backup, before = tmp_path / "other", tmp_path / "r.bak", mixed.read_bytes()
    other.write_text("mine\n", encoding="utf-8")
    backup.symlink_to(other)
    rewrite(mixed, lines_of("a"), backup=backup)
    assert (other.read_text(encoding="utf-8"), backup.read_bytes()) == ("mine\n", before)


# -- beside a notebook -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "name"),
    [("dir/x.ipynb", "x.agent.jsonl"), ("y.ipynb", None), ("x.py", None), ("", None)],
)
def test_the_recording_beside_a_notebook(tmp_path, monkeypatch, session, name):
    (tmp_path / "x.agent.jsonl").write_text(json.dumps({}), encoding="utf-8")
    monkeypatch.setenv("JPY_SESSION_NAME", session)
    assert recording_beside_notebook() == (tmp_path / name if name else None)
