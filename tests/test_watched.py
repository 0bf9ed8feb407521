"""`make/watched.py`, which runs the tests: it finds, names and ends what they leave behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

PROGRAM = Path(__file__).parents[1] / "make" / "watched.py"
LIMIT = 60
# Starts a process that leaves its parent, its group and its session, and says who it is.
ORPHAN = "(exec -a left-alone setsid sh -c 'echo $$; exec sleep 300 >&-' &);"


def start(script: str, first: Path | str = "") -> "subprocess.Popen[str]":
    path = f"{first}:{os.environ['PATH']}" if first else os.environ["PATH"]
    return subprocess.Popen(
        [sys.executable, PROGRAM, "bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path, "PYTEST_CURRENT_TEST": "the culprit"},
        process_group=0,
    )


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_is_that_of_the_command(status):
    watched = start(f"exit {status}")
    assert watched.communicate(timeout=LIMIT) == ("", "")
    assert watched.returncode == status


def test_a_process_left_behind_is_named_and_ended():
    watched = start(ORPHAN)
    said, complaint = watched.communicate(timeout=LIMIT)
    assert watched.returncode == 1
    assert f"left behind: process {said.strip()} of the culprit: sleep 300" in complaint
    assert not psutil.pid_exists(int(said))


def test_a_file_left_behind_is_named_and_removed():
    watched = start(
        "mktemp -d --tmpdir forgotten-XXXX; mkdir $TMPDIR/{pytest-of-me,agent-magics-7-x}"
    )
    said, complaint = watched.communicate(timeout=LIMIT)
    assert watched.returncode == 1
    name = Path(said.strip()).name
    assert complaint == f"left behind: file {name}\n"
    assert not Path(said.strip()).parent.exists()


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP"])
def test_when_it_is_interrupted_nothing_goes_on(name):
    watched = start(f"{ORPHAN} exec sleep 300")
    orphan = int(watched.stdout.readline())
    watched.send_signal(signal.Signals[name])
    watched.communicate(timeout=LIMIT)
    assert watched.returncode != 0
    assert not psutil.pid_exists(orphan)


def test_a_second_interrupt_ends_what_does_not_hear_the_first():
    loop = "while :; do sleep 300 & echo again; wait; done"
    watched = start(f"trap 'echo heard' INT; {ORPHAN} {loop}")
    said = {watched.stdout.readline().strip() for _ in range(2)}
    (orphan,) = map(int, said - {"again"})
    watched.send_signal(signal.SIGINT)
    assert watched.stdout.readline() == "heard\n"
    watched.send_signal(signal.SIGINT)
    watched.communicate(timeout=LIMIT)
    assert watched.returncode != 0
    assert not psutil.pid_exists(orphan)


def test_when_it_is_killed_the_command_is_interrupted(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where its folder stays
    watched = start("echo $$; exec sleep 300")
    command = psutil.Process(int(watched.stdout.readline()))
    watched.kill()
    watched.communicate(timeout=LIMIT)
    psutil.wait_procs([command], timeout=LIMIT)
    assert not command.is_running()


def test_when_who_started_it_is_killed_nothing_goes_on():
    script = f"echo $$; exec {sys.executable} {PROGRAM} bash -c 'echo $$; exec sleep 300' & wait"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        started = [psutil.Process(int(shell.stdout.readline())) for _ in range(2)]
        shell.kill()
        assert psutil.wait_procs(started, timeout=LIMIT)[1] == []


def test_an_interrupt_while_its_folder_is_removed_does_not_keep_it(tmp_path):
    rm = tmp_path / "rm"
    rm.write_text('#!/bin/sh\nkill -INT -$PPID\nexec /bin/rm "$@"\n')
    rm.chmod(0o755)
    watched = start("echo $TMPDIR; mktemp --tmpdir pytest-of-me-XXX", tmp_path)
    said, _ = watched.communicate(timeout=LIMIT)
    assert not Path(said.split()[0]).exists()


SEMAPHORE = """
import multiprocessing, os, signal
semaphore = multiprocessing.get_context("spawn").Semaphore()
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"heard\\n"))  # also within print
print(semaphore._semlock.name, flush=True)
while True:
    signal.pause()
"""


def test_what_is_killed_leaves_no_semaphore():
    watched = start(f"exec {sys.executable} -c '{SEMAPHORE}'")
    file = Path("/dev/shm", f"sem.{watched.stdout.readline().strip().removeprefix('/')}")
    assert file.exists()
    watched.send_signal(signal.SIGINT)
    assert watched.stdout.readline() == "heard\n"
    watched.send_signal(signal.SIGINT)
    watched.communicate(timeout=LIMIT)
    assert not file.exists()


def test_a_command_that_takes_too_long_is_interrupted_and_its_processes_are_named(monkeypatch):
    monkeypatch.setenv("RUN_MINUTES", "0.1")
    watched = start(f"{ORPHAN} exec sleep 300")
    said, complaint = watched.communicate(timeout=LIMIT)
    assert watched.returncode != 0
    assert f"still running: process {said.strip()} of the culprit: " in complaint
    assert not psutil.pid_exists(int(said))
