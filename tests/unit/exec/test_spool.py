"""What is kept of a command's output: every byte counted, both ends at hand, the whole on disk."""

import gc
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.exec import spool as spool_module
from agent_magics.exec.output import omission_marker
from agent_magics.exec.spool import Spool
from agent_magics.exec.temporary_files import remove_own, scratch_folder, sweep
from tests.support.descriptors import none_left
from tests.support.users import call_as_user

ROOT = str(Path(__file__).resolve().parents[3])

# Whole characters of one to four bytes, cut ones, and bytes that are none.
scraps = st.sampled_from([b"a", b"\n", "é".encode(), "漢".encode(), "😀".encode()]) | st.binary(
    max_size=3
)
pieces = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), scraps), max_size=60)


def run_python(code, **more):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=40,
        **more,
    )


def filled(*said, **limits):
    spool = Spool(**limits)
    for stream, data in said:
        spool.add(stream, data)
    spool.finish()
    return spool


@given(pieces)
def test_each_stream_reads_as_if_it_had_come_at_once(said):
    spool = filled(*said)
    for name in ("stdout", "stderr"):
        whole = b"".join(data for stream, data in said if stream == name)
        assert spool.text(name) == whole.decode("utf-8", "replace")
    assert spool.size == sum(len(data) for _, data in said)


@given(pieces, st.integers(4, 20), st.booleans())
def test_the_ends_and_the_count_are_true(said, limit, on_disk):
    spool = filled(*said, end_limit=limit, file_limit=1 << 20 if on_disk else 1)
    whole = filled(*said)
    for stream in (None, "stdout", "stderr"):
        head, tail, omitted = spool.ends(stream)
        text = whole.text(stream)
        size = len(text.encode("utf-8", "surrogateescape"))
        if not omitted:
            assert head + tail == text or size > 2 * limit
            continue
        assert spool.text(stream) == head + omission_marker(omitted, head) + tail
        if "\ufffd" not in text:  # else what counts as a character is a matter of taste
            assert text.startswith(head) and text.endswith(tail)
            assert len(head) + len(tail) + omitted == len(text)
            assert "\ufffd" not in head + tail


@given(pieces, st.integers(4, 20), st.booleans())
def test_what_one_stream_said_is_all_that_was_said(said, limit, on_disk):
    said = [("stderr", data) for _, data in said]
    spool = filled(*said, end_limit=limit, file_limit=1 << 20 if on_disk else 1)
    head, tail, omitted, _ = spool.window(0)
    assert spool.only == ("stderr" if spool.size else None)
    assert spool.text("stderr") == head + (omission_marker(omitted, head) if omitted else "") + tail


@given(st.text("aé漢😀", max_size=200), st.integers(4, 20))
def test_a_character_at_the_border_of_head_and_tail_stays_whole(text, limit):
    spool = filled(("stdout", text.encode()), end_limit=limit)
    head, tail, omitted = spool.ends()
    assert text.startswith(head) and text.endswith(tail)
    assert len(head) + len(tail) + omitted == len(text)


def test_a_character_cut_by_what_the_other_stream_said_is_whole():
    spool = Spool()
    assert spool.add("stdout", b"a\xe2\x82") == b"a"
    assert spool.add("stderr", b"x") == b"x"
    assert spool.add("stdout", b"\xac") == "€".encode()
    assert (spool.text(), spool.text("stdout"), spool.text("stderr")) == ("ax€", "a€", "x")


def test_a_character_that_never_ends_is_told_at_the_end():
    spool = Spool()
    spool.add("stdout", b"a\xf0\x9f\x98")
    assert spool.text() == "a"
    assert spool.finish() == [("stdout", b"\xf0\x9f\x98")]
    assert spool.text() == "a\ufffd"


@given(st.lists(st.text("ab\né😀", max_size=30), max_size=30), st.integers(4, 30), st.booleans())
def test_what_is_asked_for_piece_by_piece_is_everything(texts, limit, on_disk):
    spool = Spool(end_limit=limit, file_limit=1 << 20 if on_disk else 1)
    position = 0
    for text in texts:
        spool.add("stdout", text.encode())
        head, tail, missed, position = spool.window(position)
        assert missed == 0 or len(text.encode()) > (2 * limit if on_disk else limit)
        if not missed:
            assert head + tail == text
        assert len(head) + len(tail) + missed == len(text)
    assert spool.window(position) == ("", "", 0, position)


def test_what_came_long_ago_is_read_from_the_file():
    spool = Spool(end_limit=10)
    spool.add("stdout", b"0123456789" * 10)
    assert spool.window(40) == ("0123456789", "0123456789", 40, 100)
    assert spool.window(85) == ("5678901234" + "56789", "", 0, 100)
    without = Spool(end_limit=10, file_limit=1)
    without.add("stdout", b"0123456789" * 10)
    assert without.window(40) == ("", "0123456789", 50, 100)
    assert without.window(5) == ("56789", "0123456789", 80, 100)


def test_counts_since_a_position_are_of_characters_where_it_was_handed_out():
    spool = Spool(end_limit=10)
    spool.add("stdout", "é".encode() * 50)
    position = spool.window(0)[-1]
    spool.add("stdout", "é".encode() * 50)
    head, tail, missed, _ = spool.window(position)
    assert ((head + tail).count("é"), missed) == (10, 40)


# -- the file ----------------------------------------------------------------------------------


def test_a_long_output_is_in_a_file_that_only_this_user_can_read():
    spool = Spool(end_limit=100)
    spool.add("stdout", b"x" * 200)
    before = set(scratch_folder().iterdir())
    spool.add("stderr", "é".encode() * 10)
    (file,) = set(scratch_folder().iterdir()) - before
    assert spool.path() == file and file.read_bytes() == b"x" * 200 + "é".encode() * 10
    spool.add("stdout", b"more")
    assert file.read_bytes().endswith(b"more")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_short_output_becomes_a_file_when_asked_for_and_goes_on_growing():
    spool = filled(("stdout", b"one\n"))
    path = spool.path()
    spool.add("stdout", b"two\n")
    assert path == spool.path() and path.read_bytes() == b"one\ntwo\n"


def test_the_file_goes_with_the_spool():
    with none_left():
        spool = Spool(end_limit=1)
        spool.add("stdout", b"abc")
        path = spool.path()
        assert path.exists()
        del spool
        gc.collect()
    assert not path.exists()


def test_a_file_that_grows_too_long_is_given_up_and_both_ends_stay():
    spool = Spool(end_limit=1000, file_limit=1 << 20)
    spool.add("stdout", b"begin" + b"x" * 100_000)
    path = spool.path()
    for _ in range(20):
        spool.add("stdout", b"x" * 100_000)
    spool.add("stdout", b"end")
    head, tail, omitted = spool.ends()
    assert spool.lost == "it is longer than 1 MiB" and not path.exists()
    assert head.startswith("begin") and tail.endswith("end")
    assert len(head) == len(tail) == 1000 and omitted == spool.total - 2000 == 2_100_008 - 2000
    with pytest.raises(OSError, match="longer than 1 MiB"):
        spool.path()


def test_a_full_disk_costs_the_middle_alone():
    # A file may not grow beyond two megabytes there: the system's answer is the same kind.
    code = """
import resource, os
from agent_magics.exec.spool import Spool
resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
spool = Spool()
for _ in range(50):
    spool.add("stdout", b"x" * 100_000)
head, tail, omitted = spool.ends()
print(spool.lost, len(head), len(tail), omitted + len(head) + len(tail), sep="|")
from agent_magics.exec.temporary_files import scratch_folder
print(os.listdir(scratch_folder()))
"""
    result = run_python(code)
    assert result.stdout == "File too large|524288|524288|5000000\n[]\n", result.stderr


def test_after_a_full_disk_the_file_holds_all():
    code = """
import resource
from agent_magics.exec.spool import Spool
spool = Spool()
spool.add("stdout", b"all of it\\n" * 1000)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1]))
try:
    spool.path()
except OSError as error:
    print(error.strerror)
resource.setrlimit(resource.RLIMIT_FSIZE, before)
print(spool.path().stat().st_size, end="")
"""
    result = run_python(code)
    assert result.stdout == "File too large\n10000", result.stderr


def test_memory_stays_bounded_whatever_the_pieces():
    spool = Spool(end_limit=1000)
    for number in range(20_000):
        spool.add("stdout" if number % 2 else "stderr", b"%d," % number)
    whole = "".join(f"{number}," for number in range(20_000))
    head, tail, omitted = spool.ends()
    assert (head, tail, omitted) == (whole[:1000], whole[-1000:], len(whole) - 2000)
    kept = [spool._merged, *spool._streams.values()]
    assert all(len(ends._tail) <= 1100 and ends._tail_size < 2100 for ends in kept)
    assert spool.path().read_text(encoding="ascii") == whole


@settings(deadline=None, max_examples=5)
@given(st.integers(10, 2000))
def test_many_threads_may_write_and_read(limit):
    spool = Spool(end_limit=limit)
    names = ("stdout", "stderr")
    writers = [
        threading.Thread(target=lambda name=name: [spool.add(name, b"ab") for _ in range(1000)])
        for name in names * 2
    ]
    for writer in writers:
        writer.start()
    position = 0
    while any(writer.is_alive() for writer in writers):
        head, tail, missed, position = spool.window(position)
        assert missed or set(head + tail) <= set("ab")
    for writer in writers:
        writer.join()
    assert spool.size == spool.total == 8000
    assert spool.path().stat().st_size == 8000


# -- the folder --------------------------------------------------------------------------------


def test_the_folder_goes_at_exit():
    result = run_python(
        "from agent_magics.exec.temporary_files import scratch_folder; print(scratch_folder())"
    )
    assert result.stdout.startswith("/") and not os.path.exists(result.stdout.strip())
    assert result.stderr == ""


def test_what_a_killed_process_left_is_swept_by_the_next(tmp_path):
    code = (
        "import os, tempfile; tempfile.tempdir = {0!r}\n"
        "from agent_magics.exec.spool import Spool\n"
        "spool = Spool(end_limit=1); spool.add('stdout', b'abc'); print(spool.path(), flush=True)\n"
        "{1}"
    )
    killed = run_python(code.format(str(tmp_path), "os.kill(os.getpid(), 9)"))
    left = Path(killed.stdout.strip())
    assert killed.returncode == -signal.SIGKILL and left.read_bytes() == b"abc"
    run_python(code.format(str(tmp_path), ""))
    assert not left.exists() and list(tmp_path.iterdir()) == []


def test_only_folders_that_nobody_uses_are_swept(tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    used = tmp_path / f"agent-magics-{os.getpid()}-x"
    left = tmp_path / f"agent-magics-{ended.pid}-x"
    locked = tmp_path / f"agent-magics-{ended.pid}-locked"
    odd = tmp_path / "agent-magics-notes"
    for folder in (used, left, locked, odd):
        folder.mkdir()
    link = tmp_path / f"agent-magics-{ended.pid}-link"
    link.symlink_to(outside)
    # As a process of another container does, whose number means nobody here.
    holder = subprocess.Popen(["flock", locked, "sh", "-c", "echo; read x"], stdin=-1, stdout=-1)
    with holder:
        holder.stdout.readline()
        sweep(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {
            *("outside", used.name, locked.name, odd.name, link.name)
        }
        assert (outside / "file").exists()
        holder.communicate(b"\n")
    sweep(tmp_path)
    assert not locked.exists()


def test_a_folder_that_may_not_be_changed_is_removed_too():
    def leave(top):
        made = Path(top, "tmp")
        for name in ("go/mod/pkg", "closed/in"):
            (made / name).mkdir(parents=True)
            (made / name / "file").touch()
        outside = Path(top, "outside")
        outside.mkdir(0o555)
        (made / "link").symlink_to(outside)
        for name, mode in (("go/mod/pkg", 0o555), ("go/mod", 0o555), ("closed", 0), ("", 0o555)):
            (made / name).chmod(mode)
        remove_own(made, os.getpid())
        return made.exists(), stat.S_IMODE(outside.stat().st_mode)

    assert call_as_user(leave) == (False, 0o555)


def test_a_forked_child_leaves_the_parents_folder_alone():
    code = """
import os, sys
from agent_magics.exec.temporary_files import scratch_folder
from agent_magics.exec.spool import Spool
spool = Spool(end_limit=1)
spool.add("stdout", b"abc")
pid = os.fork()
if not pid:
    print(scratch_folder() != spool.path().parent)
    del spool
    sys.exit()
os.waitpid(pid, 0)
print(spool.path().read_bytes(), scratch_folder() == spool.path().parent)
"""
    result = run_python(code)
    assert result.stdout == "True\nb'abc' True\n", result.stderr


def test_all_outputs_together_take_no_more_disk_than_a_bound(monkeypatch):
    monkeypatch.setattr(spool_module, "MOST_ON_DISK", 40 << 20)
    spools = [Spool(end_limit=1024) for _ in range(4)]
    for spool in spools:
        for _ in range(20):
            spool.add("stdout", b"x" * (1 << 20))
    assert [bool(spool.lost) for spool in spools] == [True, True, False, False]
    assert spools[0].lost == "later outputs needed its room on the disk"
    assert spools[3].path().stat().st_size == 20 << 20


def test_many_outputs_of_a_few_megabytes_are_bounded_too(monkeypatch):
    monkeypatch.setattr(spool_module, "MOST_ON_DISK", 20 << 20)
    spools = [Spool(end_limit=1024) for _ in range(30)]
    for spool in spools:
        spool.add("stdout", b"x" * (1 << 20))
        spool.add("stdout", b"x" * (1 << 20))
        spool.finish()
    kept = [spool for spool in spools if not spool.lost]
    assert kept == spools[-len(kept) :], "the oldest went"
    assert 18 << 20 <= sum(spool.size for spool in kept) <= 24 << 20
