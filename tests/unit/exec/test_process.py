"""Speaking to a running command, hearing it, ending it."""

import hashlib
import logging
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from agent_magics.exec import launcher_client
from agent_magics.exec.launcher.wire import SpawnRequest
from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.exec.process import LIVE_LIMIT, end_all
from agent_magics.protocol.errors import RespondToModel

LIMIT = 60.0  # seconds: a machine that is busy may take so long


def spawn(argv, **more):
    return shared_launcher().spawn(argv, cwd="/", env=os.environ, **more)


def sh(script, **more):
    return spawn(["sh", "-c", script], **more)


def python(code, **more):
    return spawn([sys.executable, "-S", "-c", code], **more)


class Ear:
    """A listener that can be waited for."""

    def __init__(self, process):
        self.messages = []
        self.times = []
        self._heard = threading.Condition()
        process.add_listener(self.hear)

    def hear(self, stream, text):
        with self._heard:
            self.messages.append((stream, text))
            self.times.append(time.monotonic())
            self._heard.notify_all()

    @property
    def text(self):
        return "".join(text for _, text in self.messages)

    def wait_for(self, wanted):
        with self._heard:
            assert self._heard.wait_for(lambda: wanted in self.text, LIMIT), self.messages
        return self.text


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


# -- its end -----------------------------------------------------------------------------------


def test_what_is_known_of_a_process():
    process = sh("read x; exit 3", stdin=True)
    assert not process.ended and process.exit_code is None and process.argv[0] == "sh"
    assert is_alive(process.pid) and "running" in repr(process)
    so_far = process.duration
    assert not process.wait(0)
    process.write("\n")
    assert process.wait(LIMIT) and process.ended
    assert (process.exit_code, process.killed_for, process.leftovers, process.lost) == (
        3,
        "",
        0,
        "",
    )
    assert process.duration > so_far and process.duration == process.duration
    assert not is_alive(process.pid)


def test_waiting_stops_when_cancelled_and_the_process_goes_on():
    process = spawn(["sleep", "3600"])
    cancelled = threading.Event()
    timer = threading.Timer(0.1, cancelled.set)
    timer.start()
    assert not process.wait(600, cancelled) and not process.ended
    timer.join()
    process.kill()
    assert process.wait(LIMIT)


@pytest.mark.parametrize("reason", ["time", "cancel", "kill"])
def test_a_killed_process_has_a_reason_and_no_exit_code(reason):
    process = spawn(["sleep", "60"])
    process.kill(reason)
    process.kill("later")
    assert process.wait(LIMIT)
    assert (process.killed_for, process.exit_code) == (reason, None)


def test_what_has_ended_is_not_killed():
    process = spawn(["true"])
    assert process.wait(LIMIT)
    process.kill()
    process.interrupt()
    assert (process.killed_for, process.exit_code) == ("", 0)


def test_it_may_say_goodbye_unless_it_is_killed_at_once(monkeypatch):
    monkeypatch.setattr(launcher_client, "SpawnRequest", partial(SpawnRequest, grace=4.0))
    for at_once, goodbye in ((False, "hi\nbye\n"), (True, "hi\n")):
        process = sh("trap 'echo bye; exit' TERM; echo hi; while :; do :; done")
        Ear(process).wait_for("hi")
        process.kill(at_once=at_once)
        assert process.wait(LIMIT) and process.output.text() == goodbye


def test_a_flood_is_killed():
    process = spawn(["yes"])
    Ear(process).wait_for("y")
    process.kill("cancel")
    assert process.wait(LIMIT)
    assert not is_alive(process.pid)


def test_ctrl_c_reaches_what_runs_in_the_foreground():
    for tty in (False, True):
        process = sh("trap 'echo caught; exit 5' INT; echo ready; sleep 60 & wait", tty=tty)
        Ear(process).wait_for("ready")
        process.interrupt()
        assert process.wait(LIMIT) and process.exit_code == 5
        assert "caught" in process.output.text()


def test_everybody_who_asked_is_told_of_the_end_once():
    process, told = sh("read x", stdin=True), []
    process.on_end(lambda p: told.append((1, p.exit_code)))
    process.on_end(lambda p: told.append((2, p.ended)))
    process.close_stdin()
    assert process.wait(LIMIT)
    last = threading.Event()
    process.on_end(lambda p: last.set())
    assert last.is_set()
    spawn(["true"]).wait(LIMIT)  # the thread that tells is done with the others by then
    assert told == [(1, 1), (2, True)]


def test_a_stranger_who_holds_the_output_does_not_hold_the_end():
    process = sh("echo $$; read x", stdin=True)
    Ear(process).wait_for("\n")
    stranger = os.open(f"/proc/{process.pid}/fd/1", os.O_WRONLY)
    try:
        process.write("\n")
        assert process.wait(LIMIT) and process.exit_code == 0
    finally:
        os.close(stranger)


def test_a_killed_supervisor_is_told_and_leaves_nobody():
    process = sh("sleep 60 & echo $!; wait")
    child = int(Ear(process).wait_for("\n"))
    status = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    supervisor = int(status.rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    assert process.wait(LIMIT)
    assert process.exit_code is None and "launcher was killed" in process.lost
    deadline = time.monotonic() + LIMIT
    while (is_alive(child) or is_alive(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)  # they are nobody's children here: nothing signals their end
    assert not is_alive(child) and not is_alive(process.pid)


def test_one_that_cannot_be_killed_is_given_up():
    process = sh("echo ready; exec sleep 60")
    Ear(process).wait_for("ready")
    status = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
    supervisor = int(status.rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGSTOP)
    try:
        process.kill("cancel")
        assert not process.wait(0.3)
        process.give_up()
        assert process.wait(LIMIT)
        assert process.killed_for == "cancel" and "could not be seen" in process.lost
    finally:
        os.kill(supervisor, signal.SIGCONT)


def test_all_are_ended_side_by_side():
    stubborn = [sh("trap '' TERM; echo on; while :; do sleep 1; done") for _ in range(6)]
    for process in stubborn:
        Ear(process).wait_for("on")
    started = time.monotonic()
    end_all(stubborn, LIMIT)
    assert time.monotonic() - started < 10  # one after the other their grace alone is 1.2 s
    assert all(process.ended and process.killed_for == "kill" for process in stubborn)


# -- its input ---------------------------------------------------------------------------------


def test_a_pipe_is_written_to_and_closed():
    process = spawn(["cat"], stdin=True)
    ear = Ear(process)
    process.write("héllo\n")
    ear.wait_for("héllo\n")
    process.write("more\x04")
    assert process.wait(LIMIT) and process.exit_code == 0
    assert process.output.text() == "héllo\nmore"
    with pytest.raises(RespondToModel, match="has ended"):
        process.write("x")


def test_without_a_terminal_ctrl_c_interrupts():
    process = sh("trap 'echo caught' INT; echo ready; read x; read x; echo got $x", stdin=True)
    ear = Ear(process)
    ear.wait_for("ready")
    process.write("\x03")
    ear.wait_for("caught")
    process.write("one\ntwo\n")
    assert process.wait(LIMIT)
    assert "\x03" not in process.output.text()


def test_after_ctrl_d_nothing_can_be_typed():
    process = sh("cat; sleep 60", stdin=True)
    process.write("\x04")
    with pytest.raises(RespondToModel, match="input of this process is closed"):
        process.write("x")
    process.kill()
    assert process.wait(LIMIT)


def test_without_a_pipe_there_is_no_input():
    process = spawn(["sleep", "60"])
    with pytest.raises(RespondToModel, match="input of this process is closed"):
        process.write("x")
    process.kill()
    assert process.wait(LIMIT)


def test_a_program_that_does_not_read_cannot_fill_the_memory():
    process = spawn(["sleep", "60"], stdin=True)
    process.write("x" * 800_000)
    with pytest.raises(RespondToModel, match=r"does not read its input: \d+ bytes are waiting"):
        process.write("x" * 800_000)
    process.kill()
    assert process.wait(LIMIT)


def test_a_megabyte_of_input_arrives_whole():
    process = spawn(["sha256sum"], stdin=True)
    process.write("0123456789" * 100_000)
    process.close_stdin()
    assert process.wait(LIMIT)
    digest = hashlib.sha256(b"0123456789" * 100_000).hexdigest()
    assert process.output.text().split()[0] == digest


def test_a_terminal_is_one():
    process = spawn(["sh", "-c", "stty size; tty; echo err >&2; cat"], tty=True, rows=33, cols=99)
    ear = Ear(process)
    ear.wait_for("err")
    assert ear.text.startswith("33 99\r\n/dev/pts/")
    process.write("typed\n")
    ear.wait_for("typed\r\ntyped\r\n")  # once as an echo, once by cat
    process.close_stdin()
    assert process.wait(LIMIT) and process.exit_code == 0
    assert process.output.text("stdout") == process.output.text()


def test_a_terminal_makes_ctrl_c_itself():
    process = spawn(["cat"], tty=True)
    process.write("ready\n")
    Ear(process).wait_for("ready\r\nready\r\n")
    process.write("\x03")
    assert process.wait(LIMIT) and process.exit_code == 128 + signal.SIGINT


# -- those who listen --------------------------------------------------------------------------


def test_the_first_listener_hears_all_and_others_from_then_on():
    process = spawn(["cat"], stdin=True)
    process.write("one\n")
    while process.output.size < 4:  # nobody listens yet who could be told
        time.sleep(0.005)
    first = Ear(process)
    first.wait_for("one\n")
    second = Ear(process)
    process.write("two\n\x04")
    assert process.wait(LIMIT)
    assert (first.text, second.text) == ("one\ntwo\n", "two\n")


def test_one_who_stops_listening_hears_no_more():
    process = spawn(["cat"], stdin=True)
    first, second = Ear(process), Ear(process)
    process.write("one\n")
    second.wait_for("one\n")
    process.remove_listener(first.hear)
    process.write("two\n\x04")
    assert process.wait(LIMIT)
    assert (first.text, second.text) == ("one\n", "one\ntwo\n")


def test_a_flood_is_told_up_to_a_bound_and_then_in_a_sentence():
    process = sh("read go; yes 12345678é | head -c 3000000", stdin=True)
    ear = Ear(process)
    process.write("go\n")
    assert process.wait(LIMIT)
    told, sentence, after = ear.text.partition("\n… more output is coming")
    assert sentence and after == "; it is not shown live …\n"
    assert len(told.encode()) in range(LIVE_LIMIT - 3, LIVE_LIMIT + 1)
    assert process.output.text().startswith(told)


def test_what_just_fits_is_told_without_the_sentence():
    process = sh(f"read go; head -c {LIVE_LIMIT} /dev/zero", stdin=True)
    ear = Ear(process)
    process.write("go\n")
    assert process.wait(LIMIT) and ear.text == "\0" * LIVE_LIMIT


def test_listeners_are_told_at_most_twenty_times_a_second():
    code = (
        "import os, time\nend = time.monotonic() + 1\n"
        "while time.monotonic() < end: os.write(1, b'o'); os.write(2, b'e'); time.sleep(0.001)"
    )
    process = python(code)
    ear = Ear(process)
    assert process.wait(LIMIT)
    assert ear.text.count("o") == len(process.output.text("stdout"))
    assert {stream for stream, _ in ear.messages} == {"stdout", "stderr"}
    assert len(ear.messages) <= 4 + 20 * (ear.times[-1] - ear.times[0])


def test_a_listener_that_fails_harms_nobody(caplog):
    process = spawn(["cat"], stdin=True)

    def fail(stream, text):
        raise ValueError("no")

    def fail_at_end(process):
        raise ValueError("neither")

    process.add_listener(fail)
    process.on_end(fail_at_end)
    ear = Ear(process)
    process.write("one\n")
    ear.wait_for("one\n")
    process.write("two\n\x04")
    assert process.wait(LIMIT) and ear.text == "one\ntwo\n"
    assert spawn(["true"]).wait(LIMIT)
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(messages) == 2 and "told nothing more" in messages[0]


def test_threads_may_all_speak_to_one_process():
    process = spawn(["cat"], stdin=True)
    threads = [
        threading.Thread(target=lambda: [process.write("abcd") for _ in range(100)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    process.close_stdin()
    assert process.wait(LIMIT) and process.output.text() == "abcd" * 800
