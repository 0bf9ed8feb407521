"""Starting commands through the launcher: what they inherit, and that the launcher may die."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from agent_magics.exec import launcher_client, launcher_process
from agent_magics.exec.launcher_client import Launcher, shared_launcher
from agent_magics.protocol.errors import FatalError, RespondToModel
from tests.support.descriptors import none_left
from tests.support.threads import lasting_threads

pytestmark = pytest.mark.soak

ROOT = str(Path(__file__).resolve().parents[3])
LIMIT = 60.0  # seconds: a machine that is busy may take so long


@pytest.fixture
def own():
    launcher = Launcher()
    yield launcher
    launcher.close()


def spawn(launcher, argv, cwd="/", env=None, **more):
    return launcher.spawn(argv, cwd=cwd, env=os.environ if env is None else env, **more)


def output_of(launcher, argv, **more):
    process = spawn(launcher, argv, **more)
    assert process.wait(LIMIT)
    return process.output.text()


def run_python(code, **more):
    """Run a program of its own; its stderr must stay empty."""
    result = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=50,
        **more,
    )
    assert result.stderr == ""
    return result.stdout


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until_dead(*pids):
    deadline = time.monotonic() + LIMIT
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)  # not our children: nothing signals their end
    return not any(map(is_alive, pids))


# -- what a command gets -----------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"stdin": True}, {"tty": True}])
def test_a_command_has_three_descriptors_and_no_more(options):
    secret = os.open(__file__, os.O_RDONLY)
    os.set_inheritable(secret, True)
    code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
    try:
        said = output_of(shared_launcher(), [sys.executable, "-I", "-S", "-c", code], **options)
    finally:
        os.close(secret)
    assert said.strip() == "[0, 1, 2]"


def test_the_environment_and_the_folder_are_those_of_the_request(tmp_path):
    env = {"A": "1", "ODD": "\udcff=\n"}
    said = output_of(shared_launcher(), ["/usr/bin/env", "-0"], env=env, cwd=tmp_path)
    assert sorted(said.split("\0")) == ["", "A=1", "ODD=\ufffd=\n"]
    assert output_of(shared_launcher(), ["pwd"], cwd=tmp_path) == f"{tmp_path}\n"


@pytest.mark.needs("root")  # who alone may read the environment of what may not be traced
def test_the_launcher_knows_nothing_of_the_kernels_environment(monkeypatch, own):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.setenv("AGENT_MAGICS_TEST_ABI", "7")
    output_of(own, ["true"])
    environment = Path(f"/proc/{own.pid}/environ").read_bytes()
    names = {entry.partition(b"=")[0].decode() for entry in environment.split(b"\0") if entry}
    assert "AGENT_MAGICS_TEST_ABI" in names
    assert names <= {"PATH", "LD_LIBRARY_PATH", "AGENT_MAGICS_TEST_ABI"}
    command_line = Path(f"/proc/{own.pid}/cmdline").read_bytes().split(b"\0")
    assert command_line[1:3] == [b"-I", b"-S"]


def test_a_signal_to_the_kernels_group_does_not_reach_a_command():
    code = f"""
import os, signal, sys
sys.path.insert(0, {ROOT!r})
os.setpgrp()
signal.signal(signal.SIGINT, lambda *_: None)
from agent_magics.exec.launcher_client import shared_launcher
process = shared_launcher().spawn(["cat"], cwd="/", env=os.environ, stdin=True)
os.killpg(0, signal.SIGINT)
process.write("alive\\x04")
print(process.wait(20), process.exit_code, process.output.text())
"""
    assert run_python(code) == "True 0 alive\n"


def test_the_folder_is_the_one_that_was_meant_even_if_it_is_moved(tmp_path, own):
    (tmp_path / "here").mkdir()
    process = spawn(own, ["sh", "-c", "read x; ls"], cwd=tmp_path / "here", stdin=True)
    (tmp_path / "here").rename(tmp_path / "there")
    (tmp_path / "there" / "file").touch()
    process.write("\n")
    assert process.wait(LIMIT) and process.output.text() == "file\n"


def test_a_program_is_missed_also_where_a_folder_of_path_may_not_be_searched(tmp_path):
    (tmp_path / "plain-notes").touch()
    env = {"PATH": f"{tmp_path}/plain-notes:{tmp_path}:/usr/bin:/bin"}
    with pytest.raises(RespondToModel, match="Command not found: 'no-such-program'"):
        spawn(shared_launcher(), ["no-such-program"], env=env)
    with pytest.raises(RespondToModel, match="'plain-notes' cannot be run: it is not"):
        spawn(shared_launcher(), ["plain-notes"], env=env)


@pytest.mark.parametrize("make", [Path.touch, lambda path: None])
def test_a_folder_that_is_none(tmp_path, make):
    make(tmp_path / "x")
    with pytest.raises(RespondToModel, match="does not exist or is not a folder"):
        spawn(shared_launcher(), ["true"], cwd=tmp_path / "x")


def test_no_descriptors_left_is_told_and_leaves_nothing_open(own):
    code = f"""
import os, resource, sys
sys.path.insert(0, {ROOT!r})
from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.protocol.errors import RespondToModel
launcher = shared_launcher()
def spawn():
    return launcher.spawn(["true"], cwd="/", env=os.environ)
spawn().wait(20)
before = len(os.listdir("/proc/self/fd"))
for room in range(8):
    held = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + room - 1, 4096))
    try:
        process = spawn()
    except RespondToModel as error:
        print(error)
    else:
        print(process.wait(20))
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
print(spawn().wait(20), len(os.listdir("/proc/self/fd")) - before)
"""
    lines = run_python(code).splitlines()
    assert lines[0] == "The command could not be started: Too many open files."
    assert lines[-1] == "True 0"


# -- threads -----------------------------------------------------------------------------------


def test_many_threads_start_commands_at_once(own):
    results, errors = {}, []

    def start(number):
        try:
            for turn in range(4):
                results[number, turn] = output_of(own, ["echo", f"{number} {turn}"])
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert results == {(n, t): f"{n} {t}\n" for n in range(12) for t in range(4)}


@pytest.mark.soak
def test_nothing_is_left_of_many_commands(own):
    output_of(own, ["true"])
    gc.collect()  # what earlier tests left to the collector is not ours
    threads = lasting_threads()
    children = Path(f"/proc/{own.pid}/task/{own.pid}/children")

    def is_quiet():  # but for the supervisor that waits for the next command
        return not own._running and len(children.read_text("ascii").split()) == 1

    with none_left():
        for _ in range(60):
            output_of(own, ["echo", "x"], tty=True)
            spawn(own, ["sleep", "60"]).kill(at_once=True)
            with pytest.raises(RespondToModel):
                spawn(own, ["no-such-program"])
        assert not own._starting
        deadline = time.monotonic() + LIMIT
        while not is_quiet():  # one look: another would meet the next supervisor's start
            assert time.monotonic() < deadline, children.read_text("ascii")
            time.sleep(0.01)
    assert lasting_threads() <= threads


# -- the launcher's death ----------------------------------------------------------------------


def test_a_killed_launcher_ends_what_runs_and_is_replaced(own):
    running = [spawn(own, ["sleep", "60"]) for _ in range(3)]
    first = own.pid
    os.kill(first, signal.SIGKILL)
    for process in running:
        assert process.wait(LIMIT)
        assert process.exit_code in (None, 137) and is_alive(process.pid) is False
        assert process.exit_code == 137 or "launcher was killed" in process.lost
    assert output_of(own, ["echo", "again"]) == "again\n"
    assert own.pid != first


def test_one_that_dies_between_two_commands_is_replaced(own):
    output_of(own, ["true"])
    zygote = own._zygote
    os.kill(own.pid, signal.SIGKILL)
    assert zygote.next_answer() is None and own.pid is None
    assert output_of(own, ["echo", "again"]) == "again\n"


def test_a_launcher_that_cannot_start_is_told_with_its_last_words(monkeypatch, tmp_path, own):
    for text, said in (
        ("exit 3", "does not run on this machine."),
        ("echo no such luck >&2; exit 3", "does not run on this machine; it said: no such luck."),
        ("yes >&2", "does not run on this machine; it said: y"),
    ):
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        monkeypatch.setattr(launcher_process, "ANSWER_LIMIT", 1.0)
        with pytest.raises(FatalError, match="launcher of commands") as caught:
            spawn(own, ["true"])
        assert said in str(caught.value) and len(str(caught.value)) < 2500
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    with pytest.raises(FatalError, match=r"could not be started: .*No such file"):
        spawn(own, ["true"])
    assert own.capabilities().tier == 0 and "could not be started" in own.capabilities().reason


def test_one_that_can_do_nothing_else_says_what_it_can_do(own):
    found = own.capabilities()
    assert found.tier in (0, 1, 2) and found.abi >= 0
    assert found.reason or found.tier == 2
    assert own.capabilities() is found


def test_a_slow_signal_handler_does_not_make_the_wait_for_an_answer_endless(own, monkeypatch):
    output_of(own, ["true"])
    monkeypatch.setattr(launcher_process, "ANSWER_LIMIT", 1.0)
    handled = []
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(time.sleep(1.2)))
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        assert own._zygote.next_answer() is None and handled
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert output_of(own, ["echo", "x"]) == "x\n"


# -- the end -----------------------------------------------------------------------------------


def test_closing_ends_everything_and_nothing_starts_any_more():
    launcher = Launcher()
    running = [spawn(launcher, ["sh", "-c", "sleep 600 & wait"]) for _ in range(3)]
    pid = launcher.pid
    launcher.close()
    launcher.close()
    assert all(process.ended for process in running)
    assert wait_until_dead(pid, *(process.pid for process in running))
    with pytest.raises(FatalError, match="shutting down"):
        spawn(launcher, ["true"])
    assert shared_launcher() is not launcher and output_of(shared_launcher(), ["echo"]) == "\n"


def test_an_interpreter_that_ends_is_quiet_and_leaves_nobody():
    code = """
import os, threading
from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.exec.command import run_command
from agent_magics.exec.processes import ProcessManager
launcher = shared_launcher()
flood = launcher.spawn(["yes"], cwd="/", env=os.environ)
stubborn = "trap '' TERM; while :; do sleep 1; done"
idle = launcher.spawn(["sh", "-c", stubborn], cwd="/", env=os.environ)
manager = ProcessManager()
thread = threading.Thread(daemon=True, target=run_command, args=(["sleep", "600"],),
                          kwargs={"cwd": "/", "env": os.environ, "timeout": 600,
                                  "manager": manager})
thread.start()
while not manager._running: pass  # one that comes too late is told so, by an error
flood.add_listener(lambda *said: None)
print(launcher.pid, flood.pid, idle.pid)
"""
    pids = list(map(int, run_python(code).split()))
    assert len(pids) == 3 and wait_until_dead(*pids)


def test_a_killed_kernel_leaves_nobody():
    code = """
import os
from agent_magics.exec.launcher_client import shared_launcher
launcher = shared_launcher()
process = launcher.spawn(["sh", "-c", "setsid sleep 60 & echo $!; wait"], cwd="/", env=os.environ)
while not process.output.size: pass
print(launcher.pid, process.pid, process.output.text(), flush=True)
os.kill(os.getpid(), 9)
"""
    pids = list(map(int, run_python(code).split()))
    assert len(pids) == 3 and wait_until_dead(*pids)


# -- forks -------------------------------------------------------------------------------------


def test_a_forked_child_has_a_launcher_of_its_own():
    code = """
import os, sys, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # later Pythons warn of forks with threads
from agent_magics.exec.command import run_command
from agent_magics.exec.launcher_client import shared_launcher
from agent_magics.exec.processes import ProcessManager
parents = shared_launcher()
process = parents.spawn(["cat"], cwd="/", env=os.environ, stdin=True)
pid = os.fork()
if not pid:
    print(process.ended, process.lost, process.wait(0), sep="|")
    result = run_command(["echo", "child"], cwd="/", env=os.environ, timeout=20,
                         manager=ProcessManager())
    print(result.output, end="")
    print(shared_launcher() is not parents, shared_launcher().pid > 0, parents.pid)
    sys.exit()
os.waitpid(pid, 0)
process.write("parent\\x04")
print(process.wait(20), process.output.text(), shared_launcher() is parents)
"""
    assert run_python(code).splitlines() == [
        "True|It belongs to the process that this one was forked from.|True",
        "child",
        "True True None",
        "True parent True",
    ]


def test_a_forked_child_that_lives_on_does_not_keep_the_parents_commands_alive():
    code = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from agent_magics.exec.launcher_client import shared_launcher
launcher = shared_launcher()
def start():
    return launcher.spawn(["sleep", "60"], cwd="/", env=os.environ)
started, stop = [start()], threading.Event()
def start_on():
    while not stop.is_set() and len(started) < 30:
        started.append(start())
thread = threading.Thread(target=start_on)
thread.start()
children = []
for _ in range(8):
    pid = os.fork()
    if not pid:
        os.close(1)
        os.close(2)
        os.read(0, 1)
        os._exit(0)
    children.append(pid)
stop.set()
thread.join()
print(launcher.pid, *(process.pid for process in started), flush=True)
os.kill(os.getpid(), 9)
"""
    reader, writer = os.pipe()
    try:
        pids = list(map(int, run_python(code, stdin=reader).split()))
        assert len(pids) >= 2 and wait_until_dead(*pids)
    finally:
        os.close(writer)  # the forked children end
        os.close(reader)


def test_a_launcher_killed_again_and_again_does_not_harm_those_who_start(own):
    stop, told, wrong = threading.Event(), [], []

    def start():
        while not stop.is_set():
            try:
                process = spawn(own, ["echo", "x"])
            except (RespondToModel, FatalError) as error:
                told.append(str(error))
                continue
            ended = process.wait(LIMIT)
            whole = process.output.text() == "x\n" or process.lost or process.exit_code
            wrong.extend([] if ended and whole else [repr(process)])

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    killed = set()
    deadline = time.monotonic() + 2 * LIMIT
    while len(killed) < 8 and time.monotonic() < deadline:
        pid = own.pid
        if pid not in {None, *killed}:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        time.sleep(0.02)  # so that something runs between two of them
    stop.set()
    for thread in threads:
        thread.join()
    assert len(killed) == 8 and not wrong
    known = (
        *("look at what it has done", "killed before its program was started"),
        "ended twice before it took one",  # where two kills fall into one attempt
    )
    assert not [message for message in told if not any(words in message for words in known)]
    assert output_of(own, ["echo", "x"]) == "x\n"


@pytest.mark.needs("machine Linux")
def test_an_interrupt_while_a_request_is_sent_leaves_nothing_of_it(own, monkeypatch):
    assert output_of(own, ["echo", "before"]) == "before\n"

    def send_half(connection, data, fds=()):
        connection.send(len(data).to_bytes(4, "big") + data[: len(data) // 2])
        raise KeyboardInterrupt

    with none_left():
        with monkeypatch.context() as patch:
            patch.setattr(launcher_client, "send_message", send_half)
            with pytest.raises(KeyboardInterrupt):
                spawn(own, ["echo", "lost"], stdin=True)
        gc.collect()
    assert output_of(own, ["echo", "after"]) == "after\n"


@pytest.mark.needs("machine Linux")
def test_an_interrupt_while_the_launcher_starts_leaves_nothing_of_it(monkeypatch):

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher_process, "receive_message", interrupt)
    with none_left():
        with pytest.raises(KeyboardInterrupt):
            launcher_process.LauncherProcess()
        gc.collect()
