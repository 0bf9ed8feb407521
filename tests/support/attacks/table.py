"""Defines an attack: its number, its program, and how its success is detected.

The attacked process runs these modules too, copied into its workspace: the standard library only.
"""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace

from tests.support import forks

# Everything an attack may know (paths, ids, ports, never a secret): see world.py.
World = SimpleNamespace
Program = Callable[[World], "str | None"]

WRITES = "Files outside the workspace must not change"
SECRETS = "Secrets must not be readable"
KERNEL = "The kernel process must not be touched"
NETWORK = "No way out by network or local sockets"
SURFACE = "Kernel attack surface"
LATER = "Things in the workspace that run later, outside"
TERMINALS = "Terminals, temporary files"
LIFETIME = "Resources and lifetime"

# A repository and a secret below more levels than anybody looks through by their number.
DEEP = "workspace/zz/1/2/3/4/5"

# How a refusal looks. In tier 2 much of the world is not there at all, which is one as well.
_REFUSALS = {
    WRITES: {errno.EXDEV, errno.EOPNOTSUPP},
    SECRETS: {errno.EXDEV, errno.ENOENT},
    KERNEL: {errno.ENOENT, errno.ESRCH, errno.ENOTTY},
    # EISCONN: an address on a stream's message is not taken (sendto(2)).
    NETWORK: {
        *(errno.ENOENT, errno.ENETUNREACH, errno.ECONNREFUSED, errno.EAFNOSUPPORT),
        errno.EISCONN,
    },
    SURFACE: {errno.ENOSYS, errno.ENOENT},
    LATER: {errno.EBUSY},
    TERMINALS: {errno.ENOENT},
    LIFETIME: {errno.EFBIG, errno.EAGAIN},
}


@dataclass(frozen=True)
class Row:
    """One attack.

    Attributes:
        number: 1-80 were run against other sandboxes too; from 81 on they are this project's.
        group: the target of the attack; a heading of the table.
        seen_by: how the kernel detects success: "changed" (the file `target`), "secret" (the
            program returned one), "reached" (it returned anything), "received" (a word arrived),
            "signalled" or "tuned" (a process of the kernel), "orphaned" (the command lost its
            supervisor), "survived", "hung", "flooded".
        target: the file that must not change, below the world's folder.
        run: "together" with others in one command, "network" (the same with network approved),
            "terminal", or "alone".
        open_in: the tiers that do not stop it.
        remains: the consequence for the person.
        who: the users that it can be tried as; None means all.
        lacking: why a machine may refuse it by itself, so that it proves nothing there; "" where no
            machine may.
        refusals: the errno values that count as refused.
    """

    number: int
    title: str
    group: str
    program: Program
    seen_by: str
    target: str
    run: str
    open_in: tuple[int, ...]
    remains: str
    who: str | None
    lacking: str
    refusals: frozenset[int]


ROWS: dict[int, Row] = {}


def attack(
    number: int,
    title: str,
    group: str,
    seen_by: str,
    *,
    target: str = "",
    run: str = "together",
    open_in: tuple[int, ...] = (),
    remains: str = "",
    who: str | None = None,
    lacking: str = "",
) -> Callable[[Program], Program]:
    """Return a decorator that makes a function the program of a row of the table."""
    if number in ROWS:
        raise ValueError(f"two attacks bear the number {number}")
    refusals = frozenset({errno.EACCES, errno.EPERM, errno.EROFS} | _REFUSALS[group])

    def add(program: Program) -> Program:
        ROWS[number] = Row(
            number=number,
            title=title,
            group=group,
            program=program,
            seen_by=seen_by,
            target=target,
            run=run,
            open_in=open_in,
            remains=remains,
            who=who,
            lacking=lacking,
            refusals=refusals,
        )
        return program

    return add


def read(path: str) -> str:
    """Return the text of a file; an empty one was masked, and raises as if missing."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if not text:
        raise FileNotFoundError(errno.ENOENT, "empty", path)
    return text


def write(path: str, text: str = "escaped\n") -> None:
    """Write a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def racing() -> Iterator[None]:
    """Yield while a race is run: in seconds of the processor, since on a busy machine one side
    would have no turn in so short a time.
    """
    end = time.process_time() + 0.25
    while time.process_time() < end:
        yield


def run_one(row: Row, world: World) -> dict[str, object]:
    """Run an attack in a child process and return its report.

    Returns:
        "evidence" (what its program returned) or "refused" (an errno) with "text"; "signal" where
        the child was killed; "broken" where the attack itself has a bug.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    say = lambda: os.write(writing, _outcome(row, world).encode("utf-8", "replace"))  # noqa: E731
    child = forks.start(say)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8", errors="replace") as pipe:
        report = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return {"signal": os.WTERMSIG(status)}
    kind, _, text = report.partition(" ")
    if kind == "refused":
        number, _, text = text.partition(" ")
        return {"refused": int(number), "text": text}
    return {kind: text}


def _outcome(row: Row, world: World) -> str:
    try:
        return f"evidence {row.program(world) or ''}"
    except OSError as error:
        return f"refused {error.errno or 0} {error}"
    except BaseException as error:  # a bug of the attack; it must not pass for a refusal
        return f"broken {type(error).__name__}: {error}"
