"""Attacks on resource limits, and on the law that no process outlives its command."""

import os
import signal
import sys
from functools import partial

from tests.support import forks
from tests.support.attacks.table import LIFETIME, World, attack

# Every process that must not survive holds the leash: a fifo that its kernel reads. Its end of
# file says that the last of them is gone.


def _take_leash(w: World) -> None:
    leash = os.open(w.leash, os.O_WRONLY)
    os.write(leash, f"{os.getpid()}\n".encode())


def _daemon(w: World) -> None:
    """Start a daemon, forked twice, that ignores all signals."""

    def fork_again() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        forks.start(lambda: _let_go(w))

    forks.start(fork_again)


def _let_go(w: World) -> None:
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, 64)
    _take_leash(w)
    while True:
        signal.pause()


@attack(55, "a daemon forked twice outlives its command", LIFETIME, "survived", run="alone")
def _(w: World):
    _take_leash(w)
    _daemon(w)


@attack(
    56, "a daemon that ignores SIGTERM outlives the time-out", LIFETIME, "survived", run="alone"
)
def _(w: World):
    _daemon(w)
    _take_leash(w)
    while True:
        signal.pause()


@attack(
    57, "a child in the background keeps stdout open: the call hangs", LIFETIME, "hung", run="alone"
)
def _(w: World):
    _take_leash(w)

    def stay() -> None:
        os.closerange(3, 64)
        _take_leash(w)
        while True:
            signal.pause()

    forks.start(stay)


@attack(58, "60 MB of output reach the caller whole", LIFETIME, "flooded", run="alone")
def _(w: World):
    line = b"x" * 99 + b"\n"
    for _ in range(600):
        sys.stdout.buffer.write(line * 1000)
    sys.stdout.flush()


@attack(59, "the disk filled by one huge file", LIFETIME, "reached", run="alone")
def _(w: World):
    with open(f"{w.workspace}/row59", "wb") as file:
        file.truncate(w.largest_file + 1)
    os.unlink(f"{w.workspace}/row59")
    return "written"


_DISK_REMAINS = (
    "there is no quota without the right to make one (control groups, project quotas): a command"
    " can fill the disk with many files, as every program of yours can."
)


@attack(
    60,
    "the disk filled by many files",
    LIFETIME,
    "reached",
    run="alone",
    open_in=(1, 2),
    remains=_DISK_REMAINS,
)
def _(w: World):
    os.mkdir(f"{w.workspace}/row60")
    for number in range(500):
        with open(f"{w.workspace}/row60/{number}", "wb") as file:
            file.write(bytes(16384))
    return "written"


@attack(61, "survivors of a fork bomb", LIFETIME, "survived", run="alone")
def _(w: World):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _multiply(w, 6)  # 64 processes, each of which would go on


def _multiply(w: World, generations: int) -> None:
    for later in range(generations):
        forks.start(partial(_multiply, w, later))
    _take_leash(w)
    while True:
        signal.pause()
