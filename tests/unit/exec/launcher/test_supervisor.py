"""One command under its supervisor: its start, what it is given, and that nobody outlives it."""

import ctypes
import errno
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agent_magics.exec.launcher import linux
from agent_magics.exec.launcher.wire import (
    INTERRUPT,
    KILL,
    TERMINATE,
    Confinement,
    Ended,
    SpawnRequest,
    Started,
)
from tests.support.needs import require
from tests.support.sandbox.launcher_client import (
    Command,
    LauncherClient,
    family_of,
    wait_until,
    wait_until_ended,
    watch,
)

PYTHON = (sys.executable, "-I", "-S", "-c")
DAEMON = "(setsid bash -c 'trap \"\" TERM HUP; echo daemon; while :; do sleep 1000; done' &)"


@pytest.fixture(scope="module")
def launcher():
    with LauncherClient() as client:
        yield client


@pytest.fixture(params=[0, 1, 2])
def confinement(request, launcher, tmp_path) -> Confinement | None:
    """None, and one of each tier."""
    require(f"tier {request.param}")
    return Confinement(request.param, (str(tmp_path),)) if request.param else None


def stat_of(pid: int) -> list[str]:
    """State, parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def everybody_of(command: Command) -> list[int]:
    """Its processes, and the daemons, whose parent is the supervisor."""
    supervisor = int(stat_of(command.pid)[1])
    return family_of(supervisor)[1:]


def processes_of(uid: int) -> int:
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError):
            count += folder.stat().st_uid == uid
    return count


# How it starts and ends


def test_a_command_says_that_it_started_and_how_it_ended(launcher):
    command = launcher.run(["bash", "-c", "echo out; echo err >&2; exit 3"])
    assert command.replies == [Started(command.pid), Ended(3)]
    assert command.output == b"out\nerr\n"


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT", "SIGPIPE"])
def test_a_signal_is_a_negative_status(launcher, confinement, name):
    command = launcher.run(
        ["bash", "-c", f"ulimit -c 0; kill -{name[3:]} $$"], confinement=confinement
    )
    assert command.ended.status == -getattr(signal, name)


def test_the_program_is_looked_up_in_the_path_of_its_own_environment(launcher, tmp_path):
    program = tmp_path / "only-here"
    program.write_text("#!/bin/sh\necho found", encoding="utf-8")
    program.chmod(0o755)
    command = launcher.run(["only-here"], env={"PATH": f"/usr/bin:{tmp_path}"})
    assert command.output == b"found\n"
    assert launcher.run(["only-here"]).failure.errno == errno.ENOENT


def test_standard_input_is_read_to_its_end(launcher):
    command = launcher.spawn(["wc", "-c"])
    os.write(command.stdin, b"12345")
    os.close(command.stdin)
    command.stdin = -1
    command.finish()
    assert command.output.strip() == b"5"


# What cannot be run


@pytest.mark.parametrize(
    ("content", "mode", "number", "word"),
    [
        (None, 0, errno.ENOENT, "No such file"),
        ("#!/bin/sh\n", 0o644, errno.EACCES, "Permission denied"),
        ("#!/no/such/interpreter\n", 0o755, errno.ENOENT, "interpreter"),
        ("neither script nor program", 0o755, errno.ENOEXEC, "format"),
    ],
)
def test_what_cannot_be_executed_is_told(launcher, tmp_path, content, mode, number, word):
    program = tmp_path / "program"
    if content is not None:
        program.write_text(content, encoding="utf-8")
        program.chmod(mode)
    command = launcher.run([str(program)])
    assert len(command.replies) == 1
    assert (command.failure.stage, command.failure.errno) == ("exec", number)
    assert word in command.failure.message


def test_a_folder_that_is_none_is_told(launcher):
    request = SpawnRequest(("true",), "/etc/passwd", {"PATH": "/bin"})
    command = Command(launcher.socket, request, os.open("/etc/passwd", os.O_PATH))
    command.finish()
    assert (command.failure.stage, command.failure.errno) == ("cwd", errno.ENOTDIR)


def test_too_many_arguments_are_told(launcher):
    command = launcher.run(["true", *["x" * 100_000] * 60])
    assert (command.failure.stage, command.failure.errno) == ("exec", errno.E2BIG)


@pytest.mark.parametrize("argv", [[], ["nul\0within"]])
def test_what_exec_refuses_to_take_is_told(launcher, argv):
    assert launcher.run(argv).failure.stage == "exec"


def test_an_unknown_limit_is_told_and_nothing_runs(launcher, tmp_path):
    command = launcher.run(["touch", str(tmp_path / "ran")], limits={"RLIMIT_NONSENSE": 1})
    assert command.failure.stage == "launcher"
    assert not (tmp_path / "ran").exists()


def test_what_cannot_be_confined_is_not_run(tmp_path):
    with LauncherClient(env={"AGENT_MAGICS_TEST_ABI": "0"}) as without_landlock:
        confinement = Confinement(1, (str(tmp_path),))
        ran = tmp_path / "ran"
        command = without_landlock.run(["touch", str(ran)], confinement=confinement)
        assert command.failure.stage == "confine"
        assert not ran.exists()
        # The control: it is the confinement that cannot be had.
        assert without_landlock.run(["touch", str(ran)]).ended.status == 0
        assert ran.exists()


# What it is given


def test_the_environment_is_exactly_the_one_of_the_request(launcher):
    env = {"PATH": "/usr/bin:/bin", "EMPTY": "", "UMLAUT": "ä\udcff", "LINES\n": "a\nb"}
    command = launcher.run(["env", "-0"], env=env)
    seen = dict(entry.split(b"=", 1) for entry in command.output.rstrip(b"\0").split(b"\0"))
    assert seen == {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def test_a_huge_environment_travels(launcher):
    env = {f"VARIABLE_{number}": "x" * 3000 for number in range(120)}
    command = launcher.run(["/usr/bin/env"], env=env)
    assert sum(map(len, env.values())) > 300_000
    assert len(command.output.splitlines()) == 120


def test_it_runs_in_the_folder_it_was_given_even_if_that_is_renamed(launcher, tmp_path):
    folder = tmp_path / "before"
    folder.mkdir()
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    folder.rename(tmp_path / "after")
    folder.symlink_to("/etc")
    request = SpawnRequest(("/bin/pwd", "-P"), str(folder), {})
    command = Command(launcher.socket, request, opened)
    command.finish()
    assert command.output.decode().strip() == str(tmp_path / "after")


@pytest.mark.parametrize("tty", [False, True])
def test_no_descriptor_but_the_three_is_open(launcher, tty):
    script = "import os; print(*sorted(os.listdir('/proc/self/fd'), key=int))"
    command = launcher.run([*PYTHON, script], tty=tty)
    assert command.output.split() == [b"0", b"1", b"2", b"3"]  # 3 is the listing's own


def test_it_leads_a_session_of_its_own_without_a_terminal(launcher):
    script = "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0)); open('/dev/tty')"
    command = launcher.run([*PYTHON, script])
    assert command.output.endswith(b"True\n")
    assert b"No such device" in command.output


def test_a_terminal_is_the_controlling_one_and_has_its_size(launcher):
    command = launcher.run(
        ["bash", "-c", "tty < /dev/tty; stty size; ps -o tpgid=,pgid= $$"], tty=True
    )
    name, size, groups = command.output.decode().splitlines()
    assert name == "/dev/tty"
    assert size == "30 100"
    assert len(set(groups.split())) == 1


def signals_of_a_command(launcher):
    script = "grep -E '^(SigBlk|SigIgn)' /proc/self/status"
    command = launcher.run(["bash", "-c", f"exec {script}"])
    return [int(line.split()[1], 16) for line in command.output.splitlines()]


def test_signals_are_as_after_login(launcher):
    assert signals_of_a_command(launcher) == [0, 0]


def test_signals_that_make_leaves_ignored_are_as_after_login():
    ignore = b"\1" + bytes(31)  # struct sigaction of the kernel: SIG_IGN
    number, before = linux.syscall_number(13, 134), ctypes.create_string_buffer(32)
    linux.syscall(number, 32, ignore, before, 8)
    try:
        with LauncherClient() as client:
            assert signals_of_a_command(client) == [0, 0]
    finally:
        linux.syscall(number, 32, before.raw, None, 8)


def test_limits_hold(launcher, tmp_path):
    script = "ulimit -n; head -c 100000 /dev/zero > big; wc -c < big"
    limits = {"RLIMIT_NOFILE": 77, "RLIMIT_FSIZE": 4096}
    command = launcher.run(["bash", "-c", script], cwd=str(tmp_path), limits=limits)
    assert command.output.split()[0] == b"77"
    assert command.output.split()[-1] == b"4096"


def test_too_many_processes_end_the_command(launcher):
    script = "echo begun; for n in $(seq 30); do sleep 60 & done; wait"
    command = launcher.run(["bash", "-c", script], most_processes=20)
    assert command.output == b"begun\n"
    assert command.ended.status == -signal.SIGKILL
    assert command.ended.refused == ("more than 20 processes",)
    assert launcher.run(["true"], most_processes=1).ended.status == 0


def test_a_limit_above_the_hard_one_is_the_hard_one(launcher):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    command = launcher.run(["bash", "-c", "ulimit -Hn"], limits={"RLIMIT_NOFILE": hard + 1})
    assert int(command.output) == hard


def test_the_file_mask_is_the_kernels(launcher):
    previous = os.umask(0o022)
    os.umask(previous)
    command = launcher.run(["bash", "-c", "umask"])
    assert int(command.output, 8) == previous


# Nobody outlives it


def test_what_it_leaves_in_the_background_is_killed_and_counted(launcher, confinement):
    command = launcher.spawn(
        ["bash", "-c", f"sleep 1000 & {DAEMON}; read line"], confinement=confinement
    )
    command.read_until(b"daemon")
    alive = watch(everybody_of(command))
    os.write(command.stdin, b"\n")
    command.finish()
    # sleep, the daemon, and the daemon's own sleep, which may not have been born
    assert command.ended.status == 0 and command.ended.leftovers in (2, 3)
    wait_until_ended(alive, timeout=0)


def test_nothing_left_is_counted_as_nothing(launcher):
    assert launcher.run(["bash", "-c", "sleep 0.01 & wait"]).ended == Ended(0, 0)


def test_kill_reaches_the_whole_tree_at_once(launcher, confinement):
    command = launcher.spawn(
        ["bash", "-c", f"trap '' TERM; {DAEMON}; sleep 1000 & wait; sleep 1000"],
        confinement=confinement,
    )
    command.read_until(b"daemon")
    alive = watch(everybody_of(command))
    command.say(KILL)
    command.finish()
    assert command.ended == Ended(-signal.SIGKILL)
    wait_until_ended(alive, timeout=0)


def test_terminate_lets_programs_end_as_they_want(launcher, confinement):
    script = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.01; done"
    command = launcher.spawn(["bash", "-c", script], grace=20.0, confinement=confinement)
    command.read_until(b"ready")
    command.say(TERMINATE)
    command.finish()
    assert command.ended.status == 5
    assert b"bye" in command.output


def test_terminate_lets_what_was_left_behind_end_as_it_wants_too(launcher):
    daemon = "trap 'echo last word; exit' TERM; echo ready; while :; do sleep 0.01; done"
    script = f'(setsid bash -c "{daemon}" &); exec sleep 1000'
    command = launcher.spawn(["bash", "-c", script], grace=20.0)
    command.read_until(b"ready")
    command.say(TERMINATE)
    command.finish()
    assert command.ended.status == -signal.SIGTERM
    assert b"last word" in command.output


def test_terminate_kills_after_the_grace_period_what_does_not_listen(launcher):
    command = launcher.spawn(["bash", "-c", f"trap '' TERM; {DAEMON}; while :; do sleep 1; done"])
    command.read_until(b"daemon")
    alive = watch(everybody_of(command))
    began = time.monotonic()
    command.say(TERMINATE)
    command.finish()
    assert command.ended.status == -signal.SIGKILL
    wait_until_ended(alive, timeout=0)
    assert time.monotonic() - began >= 0.2


WORKING = """
import os, time
parent = os.getpid()
if not os.fork():
    while os.getppid() == parent:
        pass
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    print("cleaned up", flush=True)
    time.sleep(1000)
os._exit(0)
"""


def test_what_is_at_work_when_its_program_has_ended_may_go_on_a_moment(launcher):
    command = launcher.spawn([sys.executable, "-S", "-c", WORKING])
    command.finish()
    assert command.ended.status == 0 and command.ended.leftovers == 1
    assert b"cleaned up" in command.output


def test_a_stopped_command_can_be_terminated(launcher):
    script = "trap 'echo bye; exit 5' TERM; echo ready; kill -STOP $$; sleep 1000"
    command = launcher.spawn(["bash", "-c", script], grace=20.0)
    command.read_until(b"ready")
    wait_until(lambda: stat_of(command.pid)[0] == "T")
    command.say(TERMINATE)
    command.finish()
    assert command.ended.status == 5


def test_a_stopped_command_can_be_killed(launcher):
    command = launcher.spawn(["bash", "-c", "sleep 1000 & echo ready; kill -STOP 0; wait"])
    command.read_until(b"ready")
    wait_until(lambda: stat_of(command.pid)[0] == "T")
    command.say(KILL)
    command.finish()
    assert command.ended.status == -signal.SIGKILL


@pytest.mark.parametrize("tty", [False, True])
def test_interrupt_reaches_the_foreground(launcher, confinement, tty):
    # Of 1,000 interrupts one makes bash 5.2 spin for ever if it comes while bash starts a program.
    script = "set -m; bash -c 'trap \"echo job; exit\" INT; echo ready; while :; do :; done'; :"
    if not tty:
        script = script.removeprefix("set -m; ")
    command = launcher.spawn(["bash", "-c", script], tty=tty, confinement=confinement)
    command.read_until(b"ready")
    command.say(INTERRUPT)
    command.finish()
    assert b"job" in command.output


@pytest.mark.parametrize(
    ("word", "number"),
    [(INTERRUPT, signal.SIGINT), (TERMINATE, signal.SIGTERM), (KILL, signal.SIGKILL)],
)
def test_a_word_that_comes_before_the_start_counts(launcher, confinement, word, number):
    # Nothing waits for Started: often enough the word is there before the program runs.
    for _ in range(7):
        command = launcher.spawn(["sleep", "1000"], grace=20.0, confinement=confinement)
        command.say(word)
        command.finish()
        if isinstance(command.replies[-1], Ended):
            assert command.ended.status == -number
        else:
            assert command.failure.errno == errno.ECANCELED


def test_the_end_of_the_control_socket_ends_everything(launcher, confinement):
    command = launcher.spawn(
        ["bash", "-c", f"{DAEMON}; sleep 1000 & wait"], confinement=confinement
    )
    command.read_until(b"daemon")
    alive = watch(everybody_of(command))
    command.close()
    wait_until_ended(alive)


def test_the_program_ends_with_its_supervisor_even_if_nobody_looks(launcher, confinement):
    command = launcher.spawn(["sleep", "1000"], confinement=confinement)
    alive = watch(everybody_of(command))
    supervisor = int(stat_of(command.pid)[1])
    os.kill(launcher.pid, signal.SIGSTOP)
    try:
        os.kill(supervisor, signal.SIGKILL)
        wait_until_ended(alive)
    finally:
        os.kill(launcher.pid, signal.SIGCONT)
    command.finish()
    assert command.lost


@pytest.mark.needs("root")  # RLIMIT_NPROC counts all processes of a user
def test_a_fork_bomb_is_ended(launcher):
    script = """
import os, time
os.setuid(4243)
print("ready", flush=True)
end = time.monotonic() + 50  # should this test fail
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        pass
"""
    command = launcher.spawn([*PYTHON, script], limits={"RLIMIT_NPROC": 150})
    command.read_until(b"ready")
    wait_until(lambda: processes_of(4243) > 100)
    command.say(KILL)
    command.finish()
    assert command.ended.status == -signal.SIGKILL
    assert processes_of(4243) == 0
