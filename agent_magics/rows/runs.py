"""Stores the progress of named maps beside their answers, in the same SQLite file.

The record stays when its kernel dies: `%agent map` lists it, and the same call goes on from it.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from hashlib import blake2b
from itertools import starmap
from pathlib import Path
from typing import NamedTuple

from agent_magics.files.locks import held_while
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.rows.job import Job
from agent_magics.rows.store import RecordTable, finish
from agent_magics.text.typed import as_typed

# Seconds between two notes of how far a map is.
EVERY = 1.0

RUNNING = "running"
ANOTHER = (
    "The run {name!r} asks {model} something else and has {answered:,} answers: choose another "
    "name=, or forget it with %agent map forget {typed}."
)
UNDER_WAY = (
    "The run {name!r} is under way in another kernel or cell, and both would pay for its rows: "
    "wait for it (%agent map shows how far it is), or choose another name=."
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    name TEXT PRIMARY KEY, map BLOB NOT NULL, model TEXT NOT NULL, began INTEGER NOT NULL,
    seen INTEGER NOT NULL, rows INTEGER, answered INTEGER NOT NULL, cost REAL, state TEXT NOT NULL
)
"""


class OpenMap(NamedTuple):
    """A named map that has not asked about all its rows yet.

    Attributes:
        name: as its caller calls it.
        map: digest of what it asks.
        model: the model's name.
        began, seen: when it was first called, and when it last said how far it was (seconds since
            the epoch).
        rows: the number of its rows; None while that is not known.
        answered: rows that have an answer.
        cost: USD of all its calls; None where the price is not known.
        state: `RUNNING`, or why it ended early.
    """

    name: str
    map: bytes
    model: str
    began: int
    seen: int
    rows: int | None = None
    answered: int = 0
    cost: float | None = 0.0
    state: str = RUNNING

    @property
    def is_alive(self) -> bool:
        """Whether a kernel has noted the map's progress in the last seconds."""
        return self.state == RUNNING and abs(time.time() - self.seen) < 10 * EVERY


class Runs(RecordTable):
    """The named maps of one file of answers; each method waits for the disk.

    Args:
        path: the file of answers.

    Raises:
        FatalError: the file cannot be used; so do all methods.
    """

    schema = _SCHEMA

    def all(self) -> list[OpenMap]:
        """Return the maps that have not asked about all their rows, the oldest first."""
        return list(starmap(OpenMap, self._execute("SELECT * FROM runs ORDER BY began, name")))

    def keep(self, run: OpenMap) -> None:
        """Store the progress of a map."""
        self._execute(f"REPLACE INTO runs VALUES ({','.join('?' * len(run))})", run)

    def forget(self, name: str) -> bool:
        """Remove a map's record, not its answers; return whether there was one."""
        was_there = any(run.name == name for run in self.all())
        self._execute("DELETE FROM runs WHERE name = ?", (name,))
        return was_there

    def find(self, new: OpenMap) -> OpenMap:
        """Return the stored map of this name; `new` where there is none.

        Raises:
            FatalError: the one of this name asks something else.
        """
        known = next((run for run in self.all() if run.name == new.name), new)
        if known.map != new.map:
            raise FatalError(ANOTHER.format(typed=as_typed(new.name), **known._asdict()))
        return known


def _held(path: Path, name: str) -> AbstractContextManager[None]:
    """Hold a run's name against other maps; see `held_while`."""
    digest = blake2b(name.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
    return held_while(path.with_name(f"{path.name}-{digest}"), UNDER_WAY.format(name=name))


@asynccontextmanager
async def noted(path: Path, name: str, job: Job, digest: bytes) -> AsyncIterator[None]:
    """Store a map's progress each second until it ends; forget it when all rows have been asked.

    Args:
        path: the file of answers.
        name: the run's.
        job: the map.
        digest: of all that it asks, but for its rows.

    Raises:
        FatalError: a run of this name asks something else, or another kernel runs it, or the file
            cannot be used.
    """
    runs, now = await asyncio.to_thread(Runs, path), int(time.time())
    found = await asyncio.to_thread(
        runs.find, OpenMap(name, digest, job.plan.terms.model, now, now)
    )

    async def note(state: str = RUNNING) -> None:
        progress = job.progress
        costs = (found.cost, progress.known_cost)
        await asyncio.to_thread(
            runs.keep,
            found._replace(
                seen=int(time.time()),
                rows=progress.total,
                answered=progress.done - progress.failed,
                cost=None if None in costs else sum(filter(None, costs)),
                state=state,
            ),
        )

    async def note_often() -> None:
        while not over.done():
            with suppress(FatalError):  # a full disk: the rows matter more than this record
                await note()
            await asyncio.wait({over}, timeout=EVERY)

    async def end() -> None:
        # Not cancelled: what a thread is writing then would come after what is written here.
        over.set_result(None)
        await asyncio.wait({noting})
        with suppress(FatalError):
            if job.stopped:
                await note(job.stopped)
            else:
                await asyncio.to_thread(runs.forget, name)

    with _held(path, name):
        over = asyncio.get_running_loop().create_future()
        noting = asyncio.create_task(note_often())
        try:
            yield
        except BaseException as error:
            job.stopped = job.stopped or short_message(error) or "it was interrupted"
            raise
        finally:
            await finish(end)
