"""The launcher itself: what it is, that it stays so, and that it ends when the kernel does."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agent_magics.exec.launcher import linux
from agent_magics.exec.launcher.wire import Ended, receive_message, send_message
from tests.support.needs import not_tested
from tests.support.sandbox.launcher_client import (
    LauncherClient,
    family_of,
    wait_until,
    wait_until_ended,
    watch,
)

WAITING = 2  # processes that wait for the next command: its supervisor, and what becomes it


def open_descriptors(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            found.append(os.readlink(link))
    return sorted(found)


def status_of(pid: int, field: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field + ":"):
            return line.partition(":")[2].strip()
    raise AssertionError(field)


def test_its_first_message_tells_who_it_is():
    with LauncherClient() as launcher:
        assert launcher.hello == {"pid": launcher.pid, "landlock_abi": linux.landlock_abi()}
        assert Path(f"/proc/{launcher.pid}").exists()


def test_tests_can_ask_for_an_older_landlock():
    if linux.landlock_abi() < 2:
        not_tested("an older Landlock", "this kernel has none that is newer")
    with LauncherClient(env={"AGENT_MAGICS_TEST_ABI": "1"}) as launcher:
        assert launcher.hello["landlock_abi"] == 1


def test_it_has_one_thread_and_a_session_of_its_own():
    with LauncherClient() as launcher:
        for pid in (launcher.pid, launcher.guardian):
            assert status_of(pid, "Threads") == "1"
            assert os.getsid(pid) == os.getpgid(pid) == pid


def test_an_interrupt_of_its_whole_group_does_not_end_it():
    with LauncherClient() as launcher:
        command = launcher.spawn(["sleep", "1000"])
        assert command.pid
        os.killpg(launcher.pid, signal.SIGINT)
        os.killpg(launcher.guardian, signal.SIGINT)
        assert launcher.run(["echo", "still here"]).output == b"still here\n"
        assert not status_of(command.pid, "State").startswith("Z")
        command.close()


@pytest.mark.needs("root")
def test_nobody_can_look_into_it_its_guardian_or_its_supervisors():
    with LauncherClient(uid=4244) as launcher:
        command = launcher.spawn(["sleep", "1000"])
        supervisor = int(status_of(command.pid, "PPid"))
        owners = [
            Path(f"/proc/{pid}/environ").stat().st_uid
            for pid in (launcher.guardian, launcher.pid, supervisor, command.pid)
        ]
        # What may not be traced belongs to root (man 5 proc); the program is the person's own.
        assert owners == [0, 0, 0, 4244]
        assert {status_of(pid, "Uid").split()[0] for pid in (supervisor, command.pid)} == {"4244"}
        command.close()


@pytest.mark.needs("root")
def test_it_works_without_reading_a_file_of_python_after_its_start():
    """It goes on while pip replaces what it was started from: nothing is imported late."""
    with LauncherClient(uid=4244) as launcher:
        assert launcher.run(["bash", "-c", "sleep 1000 & exit 4"]).ended == Ended(4, 1)
        assert launcher.run(["nosuch"]).failure.stage == "exec"


@pytest.mark.needs("root")  # who alone may see the descriptors of what may not be traced
def test_it_keeps_no_descriptor_of_the_kernel(tmp_path):
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    ours, theirs = socket.socketpair()
    process = start_with_everything_inherited(theirs)
    hello = json.loads(receive_message(ours)[0])
    for pid in (process.pid, hello["pid"]):
        assert str(tmp_path) not in open_descriptors(pid)
    os.close(leaked)
    ours.close()
    process.wait(timeout=20)


def start_with_everything_inherited(theirs: socket.socket) -> subprocess.Popen:
    code = (
        f"import sys; sys.path.append({str(Path(__file__).parents[4])!r}); "
        f"from agent_magics.exec.launcher.zygote import main; main({theirs.fileno()})"
    )
    os.set_inheritable(theirs.fileno(), True)
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], close_fds=False, env={})
    theirs.close()
    return process


@pytest.mark.needs("root")
def test_streams_that_are_closed_at_its_start_do_no_harm():
    ours, theirs = socket.socketpair()
    os.set_inheritable(theirs.fileno(), True)
    code = (
        f"import sys; sys.path.append({str(Path(__file__).parents[4])!r}); "
        f"from agent_magics.exec.launcher.zygote import main; main({theirs.fileno()})"
    )
    shell = f'exec "{sys.executable}" -I -S -c "$CODE" <&- >&- 2>&-'
    process = subprocess.Popen(["bash", "-c", shell], close_fds=False, env={"CODE": code})
    theirs.close()
    hello = json.loads(receive_message(ours)[0])
    links = {os.readlink(f"/proc/{hello['pid']}/fd/{number}") for number in range(3)}
    assert links == {"/dev/null"}
    ours.close()
    process.wait(timeout=20)


@pytest.mark.long
@pytest.mark.needs("root")
def test_a_thousand_commands_leave_nothing_behind():
    with LauncherClient() as launcher:
        launcher.run(["true"])
        wait_until(lambda: len(family_of(launcher.pid)) == 1 + WAITING)
        before = len(open_descriptors(launcher.pid))
        memory = int(status_of(launcher.pid, "VmRSS").split()[0])
        for number in range(250):
            commands = [
                launcher.spawn(["true"]),
                launcher.spawn(["bash", "-c", "exit 1"], tty=True),
                launcher.spawn(["nosuch"]),
                launcher.spawn(["bash", "-c", "(setsid sleep 1000 &); sleep 1000 & exit"]),
            ]
            for command in commands:
                command.finish()
            assert len(commands[0].replies) == 2, number
        wait_until(lambda: len(family_of(launcher.pid)) == 1 + WAITING)
        assert len(open_descriptors(launcher.pid)) == before
        # A leak of 100 bytes a command would be 100 KiB.
        assert int(status_of(launcher.pid, "VmRSS").split()[0]) - memory < 400


def test_many_commands_at_once():
    with LauncherClient() as launcher:
        commands = [launcher.spawn(["bash", "-c", f"read line; exit {n}"]) for n in range(60)]
        for command in commands:
            os.write(command.stdin, b"\n")
        for command in commands:
            command.finish()
        assert [command.ended.status for command in commands] == list(range(60))


def test_a_request_that_makes_no_sense_is_told_and_does_no_harm():
    with LauncherClient() as launcher:
        ours, theirs = socket.socketpair()
        null = os.open("/dev/null", os.O_RDWR)
        send_message(launcher.socket, b'{"argv": 5}', [theirs.fileno(), *[null] * 4])
        theirs.close()
        answer, _ = receive_message(ours)
        assert json.loads(answer)[0] == "Failed"
        assert receive_message(ours) == (b"", [])
        send_message(launcher.socket, b"no JSON, and no descriptors")
        assert launcher.run(["echo", "fine"]).output == b"fine\n"
        ours.close()
        os.close(null)


@pytest.mark.needs("root")  # the limit does not hold root, who alone can become another
@pytest.mark.parametrize("processes", [2, 3])
def test_no_process_left_to_fork_is_told(processes):
    # Guardian and launcher are two; a supervisor is the third, its command the fourth.
    with LauncherClient(uid=4245, processes=processes) as launcher:
        command = launcher.run(["true"])
        assert (command.failure.stage, command.failure.errno) == ("launcher", errno.EAGAIN)
        assert launcher.run(["true"]).failure.errno == errno.EAGAIN
        wait_until(lambda: len(family_of(launcher.pid)) < processes)


def waiting_for(launcher: LauncherClient) -> list[int]:
    """Return the supervisor that waits for the next command, and the process that becomes it."""
    wait_until(lambda: len(family_of(launcher.pid)) == 1 + WAITING)
    return family_of(launcher.pid)[1:]


def test_who_waits_serves_the_next_command_and_no_other():
    with LauncherClient() as launcher:
        waiting = waiting_for(launcher)
        command = launcher.spawn(["sleep", "1000"])
        assert [int(status_of(command.pid, "PPid")), command.pid] == waiting
        assert launcher.run(["true"]).pid not in waiting
        command.close()


@pytest.mark.parametrize("which", ["supervisor", "command"])
def test_who_waits_may_be_killed(which):
    with LauncherClient() as launcher:
        supervisor, command = waiting_for(launcher)
        if which == "supervisor":
            ended = watch([supervisor, command])  # the second ends with the first
            os.kill(supervisor, signal.SIGKILL)
        else:
            ended = watch([command])
            os.kill(command, signal.SIGKILL)
        wait_until_ended(ended)
        if which == "command":  # nobody watches it: the next request finds out
            assert launcher.run(["true"]).failure.stage == "launcher"
        assert launcher.run(["echo", "fine"]).output == b"fine\n"


def test_it_ends_with_the_kernel_and_ends_everything():
    launcher = LauncherClient()
    command = launcher.spawn(["bash", "-c", "(setsid sleep 1000 &); sleep 1000 & echo; wait"])
    command.read_until(b"\n")
    alive = watch(family_of(launcher.guardian))
    assert len(alive) >= 6  # guardian, launcher, supervisor, bash, two sleeps
    launcher.close()
    wait_until_ended(alive)
    command.close()
