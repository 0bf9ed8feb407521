"""Starts seats in the processes of a `concurrent.futures.Executor`, on this machine.

Workers connect to a socket in a folder that only this user can read, so the key of the model server
never passes a network. One seat always waits: it begins when the executor has a process free.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from agent_magics.listening import start_listening
from agent_magics.protocol.errors import FatalError, clause, own_or_typed_message
from agent_magics.rows.engines.coordinator import IS_CANCELLED, Joined, Serve
from agent_magics.rows.engines.worker import Invitation, sit

FORKS = (
    "engine= got a pool that forks its processes, which breaks a kernel with threads: make it with "
    "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))."
)
NO_SEAT = "The workers of engine={kind} cannot ask: {error}."
# Workers that are reckoned with where an executor does not tell how many it has.
SOME = 4
# Bytes of the path of a folder for temporary files: that of a socket has 103 at most on macOS.
LONGEST_FOLDER = 75


class ExecutorEngine:
    """An executor as engine; see `Engine`.

    Raises:
        FatalError: it forks its processes.
    """

    def __init__(self, executor: Executor) -> None:
        if isinstance(executor, ProcessPoolExecutor):
            context: Any = getattr(executor, "_mp_context", None)
            if context is None or context.get_start_method() == "fork":
                raise FatalError(FORKS)
        self._executor = executor
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._seats: set[Future[str]] = set()

    def workers(self) -> int:
        """See `Engine.workers`."""
        # Those of the standard library, and of ipyparallel.
        most = getattr(self._executor, "_max_workers", None)
        return int(most or len(getattr(self._executor, "view", ())) or SOME)

    async def listen(self, serve: Serve) -> tuple[asyncio.Server, str]:
        """See `Engine.listen`."""
        is_long = len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER
        parent = "/tmp" if is_long else None
        self._folder = tempfile.TemporaryDirectory(prefix="agent-map-", dir=parent)
        place = str(Path(self._folder.name) / "rows")
        made = asyncio.start_unix_server(serve, place, start_serving=False)
        return await start_listening(made), place

    async def seat(self, invite: Callable[[], Invitation], joined: Joined) -> None:
        """See `Engine.seat`."""
        while True:
            invitation = invite()
            ended = self._submit(sit, invitation)
            came = asyncio.ensure_future(joined(invitation.number))
            both: list[asyncio.Future[Any]] = [ended, came]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                came.cancel()
            if ended.cancelled():
                raise self._no_seat(FatalError(IS_CANCELLED))
            if ended.done() and (failure := ended.exception()):
                raise self._no_seat(failure)

    async def start(
        self, task: Callable[..., str], invitation: Invitation, given: Any
    ) -> "asyncio.Future[str]":
        """See `Engine.start`."""
        return self._submit(task, invitation, given)

    def _submit(self, task: Callable[..., str], *given: Any) -> "asyncio.Future[str]":
        """Have the executor run a task; raise a FatalError where it takes none."""
        try:
            seat = self._executor.submit(task, *given)
        except RuntimeError as error:  # it was shut down, or one of its processes died
            raise self._no_seat(error) from None
        self._seats.add(seat)
        ended = asyncio.wrap_future(seat)
        ended.add_done_callback(_look_at)  # one that begins after the map is told of nowhere
        return ended

    async def close(self) -> None:
        """See `Engine.close`."""
        for seat in self._seats:
            seat.cancel()
        if self._folder is not None:
            self._folder.cleanup()

    def _no_seat(self, error: BaseException) -> FatalError:
        words = {
            "kind": type(self._executor).__name__,
            "error": clause(own_or_typed_message(error)),
        }
        return FatalError(NO_SEAT.format(**words))


def _look_at(seat: "asyncio.Future[str]") -> None:
    if not seat.cancelled():
        seat.exception()
