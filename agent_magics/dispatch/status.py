"""Defines the decisions about a call, which its tool may read, and the error that ends its turn."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from agent_magics.protocol.errors import FatalError, TurnAbort
from agent_magics.time_limit import TimeLimit

R = TypeVar("R")

# Progress updates of one call that are all sent; of more, one in so many seconds. Each is drawn and
# recorded, and a generator or a server may make thousands in a second, without end.
FREE_UPDATES = 100
UPDATE_INTERVAL = 0.1


class CallStatus:
    """The decisions about a call that its tool may read and not change.

    Attributes:
        bypass_sandbox: whether this attempt may leave the sandbox, by an approval or a rule.
        read_only: whether it is a command known to only read: no question, no folder to write.
        judged: whether the accessed paths have been approved already.
        permit: answers `ToolContext.ask`; None until the call is judged.
        ready: the result of the tool's `init`; None where it has none.
        clock: the call's time limit, paused while a question waits.
        is_cancelled: whether the turn was interrupted.
        cancelled: the same as an event; created when a tool first reads it, since most never do.
        reads: the files that the call may read, as absolute paths without symlinks; a folder, with
            a slash at its end, stands for all in it.
        writes: the further paths that the call asks to write, as they were judged: absolute,
            without symlinks, never resolved again.
        held: names of stored results of its output, which nobody reads before hooks have let that
            pass; None where no hook sees outputs.
        updates: how many updates of its progress were sent, the last one at `updated`.
    """

    # Class attributes are the initial values, so that making an object sets few attributes.
    bypass_sandbox = False
    read_only = False
    judged = False
    permit: Callable[..., Awaitable[None]] | None = None
    ready: Any = None
    clock: TimeLimit | None = None
    is_cancelled = False
    cancelled: threading.Event | None = None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    held: list[str] | None = None
    updates = 0
    updated = 0.0

    def note_reads(self, *paths: str) -> None:
        """Add to `reads`."""
        marked = (f"{path.rstrip('/')}/" if Path(path).is_dir() else path for path in paths)
        self.reads = tuple(dict.fromkeys((*self.reads, *marked)))

    def may_update(self) -> bool:
        """Count an update of the progress; return False where it comes too soon after many."""
        now = time.monotonic()
        if self.updates >= FREE_UPDATES and now - self.updated < UPDATE_INTERVAL:
            return False
        self.updates, self.updated = self.updates + 1, now
        return True

    def cancel(self) -> None:
        """Notify the tool that the turn is over."""
        # In this order, against the order in `ToolContext.cancelled`, no thread can miss it.
        self.is_cancelled = True
        if self.cancelled is not None:
            self.cancelled.set()


class TurnStop:
    """Keeps the error that ends a turn, since code around a nested call may catch it.

    Used on the engine's loop.

    Attributes:
        error: the first such error; None while the turn goes on.
    """

    def __init__(self) -> None:
        self.error: TurnAbort | FatalError | None = None
        self._watched: list[tuple[str, asyncio.Task[Any]]] = []

    async def watch(self, id: str, work: Coroutine[Any, Any, R]) -> R:
        """Await a nested call, a question of a tool, or the model; `end` may cancel it.

        Its `id` begins with that of the call around it, and a dot.

        Raises:
            CancelledError: another one has ended the turn.
        """
        task = asyncio.current_task()
        assert task is not None  # whoever awaits this
        self._watched.append((id, task))
        try:
            if self.error is not None:  # no `except Exception` goes on after a second error
                work.close()
                raise asyncio.CancelledError
            return await work
        except (TurnAbort, FatalError) as error:
            self.end(id, error)
            raise
        finally:
            self._watched.remove((id, task))

    def end(self, id: str, error: TurnAbort | FatalError) -> None:
        """End the turn: cancel all that is watched, but the calls around `id`, which hear of it."""
        if self.error is not None:
            return
        self.error = error
        others = {task for other, task in self._watched if not id.startswith(f"{other}.")}
        for task in others - {asyncio.current_task()}:
            task.cancel()
