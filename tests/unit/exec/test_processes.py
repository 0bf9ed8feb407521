"""The processes of one conversation: sessions by their ids, a TMPDIR, and an end for all."""

import gc
import os
import stat
import threading

import pytest

from agent_magics.exec import processes
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.processes import MOST_SESSIONS, ProcessManager
from agent_magics.protocol.errors import FatalError, RespondToModel
from tests.support import forks

LIMIT = 60.0  # seconds: a machine that is busy may take so long
HERE = {"cwd": "/", "env": os.environ}


@pytest.fixture
def manager():
    manager = ProcessManager()
    yield manager
    manager.close()


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(processes, "MOST_SESSIONS", 3)


def is_alive(pid):
    return os.path.exists(f"/proc/{pid}")


def ended_session(manager, number):
    session = manager.start_session(["sh", "-c", f"exit {number}"], **HERE)
    assert session.process.wait(LIMIT)
    return session


# -- sessions ----------------------------------------------------------------------------------


def test_a_session_is_found_by_its_id(manager):
    session = manager.start_session(["cat"], command="my cat", stdin=True, **HERE)
    assert manager.get(session.id) is session and manager.sessions() == [session]
    assert 10_000 <= session.id < 100_000
    assert (session.command, session.ended, session.exit_code, session.position) == (
        *("my cat", False, None, 0),
    )
    assert manager.running == 1 and session.seconds > 0
    session.process.write("\x04")
    assert session.process.wait(LIMIT)
    assert manager.get(session.id).exit_code == 0 and session.ended


def test_a_process_may_be_kept_later(manager):
    process = manager.start(["sleep", "60"], **HERE)
    assert manager.sessions() == [] and manager.running == 1
    number = manager.keep(process)
    assert manager.get(number).process is process and manager.get(number).command == "sleep 60"
    manager.drop(number)
    assert manager.sessions() == [] and manager.running == 1


def test_an_unknown_id_is_answered_with_the_known_ones(manager):
    with pytest.raises(RespondToModel, match=r"no session 7 in this .*; no session was started"):
        manager.get(7)
    running = manager.start_session(["sleep", "60"], **HERE)
    ended = ended_session(manager, 4)
    with pytest.raises(RespondToModel) as caught:
        manager.get(7)
    assert str(caught.value).endswith(
        f"there are {running.id} (sleep 60), {ended.id} (sh -c 'exit 4', ended)."
    )


def test_conversations_do_not_see_each_other(manager):
    other = ProcessManager()
    session = other.start_session(["sleep", "60"], **HERE)
    with pytest.raises(RespondToModel, match=f"no session {session.id} in this conversation"):
        manager.get(session.id)
    manager.close()
    assert not session.ended
    other.close()
    assert session.ended


def test_ids_are_never_given_twice(manager, monkeypatch):
    monkeypatch.setattr(processes, "_FIRST_IDS", range(10, 20))
    monkeypatch.setattr(processes, "_given", set())
    ids = [ended_session(manager, 0).id for _ in range(12)]
    assert len(set(ids)) == 12
    assert all(number in range(10, 20) for number in ids[:5])
    assert all(number in range(20, 200) for number in ids[7:])


def test_a_full_table_is_an_error_that_names_them_and_kills_nobody(manager, few):
    sessions = [manager.start_session(["sleep", str(60 + n)], **HERE) for n in range(3)]
    with pytest.raises(RespondToModel) as caught:
        manager.start_session(["sleep", "70"], **HERE)
    for n, session in enumerate(sessions):
        assert f"{session.id} (sleep {60 + n})" in str(caught.value) and not session.ended
    assert str(caught.value).startswith("3 sessions are open") and "kill_session" in str(
        caught.value
    )
    assert manager.running == 3  # the fourth never ran
    fourth = manager.start(["sleep", "70"], **HERE)
    with pytest.raises(RespondToModel, match="3 sessions are open"):
        manager.keep(fourth)
    assert not fourth.ended
    sessions[0].process.kill()
    assert sessions[0].process.wait(LIMIT)
    assert manager.get(manager.keep(fourth)).process is fourth


def test_the_bound_is_sixty_four():
    assert MOST_SESSIONS == 64


def test_calls_side_by_side_do_not_get_beyond_the_bound(manager, few):
    made, refused = [], []

    def start():
        try:
            made.append(manager.start_session(["sleep", "60"], **HERE))
        except RespondToModel as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused), manager.running) == (3, 6, 3)


def test_a_place_is_free_again_after_a_failed_start(manager, few):
    for _ in range(5):
        with pytest.raises(RespondToModel, match="Command not found"):
            manager.start_session(["no-such-program"], **HERE)
    assert manager.start_session(["sleep", "60"], **HERE) and len(manager.sessions()) == 1


def test_ended_sessions_stay_readable_the_oldest_told_go_first(manager, few):
    sessions = [ended_session(manager, n) for n in range(3)]
    sessions[1].is_reported = True
    newest = ended_session(manager, 3)
    manager.start_session(["sleep", "60"], **HERE)
    assert [session.exit_code for session in manager.sessions()] == [0, 2, 3, None]
    assert manager.get(newest.id) is newest
    ended_session(manager, 4)
    manager.start_session(["sleep", "60"], **HERE)
    assert [session.exit_code for session in manager.sessions()] == [2, 3, None, 4, None]


def test_each_end_is_told_once(manager):
    running = manager.start_session(["sleep", "60"], **HERE)
    ended = [ended_session(manager, n) for n in (0, 3)]
    assert manager.take_ended() == ended
    assert [session.exit_code for session in ended] == [0, 3]
    assert manager.take_ended() == []
    running.process.kill()
    assert running.process.wait(LIMIT)
    assert manager.take_ended() == [running] and manager.take_ended() == []


def test_an_end_that_the_model_has_read_is_not_told_again(manager):
    ended_session(manager, 0).is_reported = True
    assert manager.take_ended() == []


# -- TMPDIR ------------------------------------------------------------------------------------


def test_a_confined_command_has_a_private_tmpdir_that_it_may_write_to(manager, tmp_path):
    confinement = Confinement(tier=1, writable=(str(tmp_path),))
    process = manager.start(
        ["sh", "-c", 'echo secret > "$TMPDIR/file" && echo "$TMPDIR"'],
        confinement=confinement,
        **HERE,
    )
    assert process.wait(LIMIT)
    assert process.output.text() == f"{manager.tmpdir}\n"
    assert (manager.tmpdir / "file").read_text(encoding="utf-8") == "secret\n"
    assert stat.S_IMODE(manager.tmpdir.stat().st_mode) == 0o700
    folder = manager.tmpdir
    manager.close()
    assert not folder.exists()


def test_a_free_command_keeps_the_tmpdir_it_was_given(manager):
    process = manager.start(
        ["sh", "-c", "echo $TMPDIR"], cwd="/", env={"TMPDIR": "/x", "PATH": "/bin"}
    )
    assert process.wait(LIMIT) and process.output.text() == "/x\n"


@pytest.mark.soak
def test_two_conversations_have_two_folders_and_a_removed_one_is_made_anew(manager):
    other = ProcessManager()
    first = manager.tmpdir
    assert first != other.tmpdir and first == manager.tmpdir
    first.rmdir()
    assert manager.tmpdir.is_dir()
    theirs = other.tmpdir
    del other
    gc.collect()
    assert not theirs.exists()


# -- the end -----------------------------------------------------------------------------------


def test_closing_kills_everything(manager, monkeypatch):
    monkeypatch.setattr(processes, "_CLOSE_LIMIT", LIMIT)
    script = "trap '' TERM; sleep 600 & echo $!; while :; do sleep 1; done"
    sessions = [manager.start_session(["sh", "-c", script], **HERE) for _ in range(4)]
    free = manager.start(["yes"], **HERE)
    heard = threading.Semaphore(0)
    for session in sessions:
        session.process.add_listener(lambda *said: heard.release())
    for _ in sessions:
        assert heard.acquire(timeout=LIMIT)
    pids = [int(session.process.output.text()) for session in sessions]
    manager.close()
    assert manager.running == 0 and free.ended and free.killed_for == "kill"
    assert not [pid for pid in pids if is_alive(pid)]
    assert all(session.ended for session in manager.sessions())  # still readable


def test_after_closing_nothing_starts(manager):
    manager.close()
    manager.close()
    with pytest.raises(FatalError, match="conversation is closed"):
        manager.start(["true"], **HERE)
    assert manager.running == 0


def test_a_forked_child_can_close_the_parents_manager_and_harms_nobody(manager):
    session = manager.start_session(["cat"], stdin=True, **HERE)
    folder = manager.tmpdir
    locked, done = threading.Event(), threading.Event()

    def hold():
        with manager._lock:
            locked.set()
            done.wait(LIMIT)

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(LIMIT)

    def close() -> bool:
        manager.close()
        return session.ended

    assert forks.call(close)
    done.set()
    holder.join()
    assert folder.is_dir() and not session.ended
    session.process.write("alive\x04")
    assert session.process.wait(LIMIT) and session.process.output.text() == "alive"
