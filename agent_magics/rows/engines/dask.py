"""Starts a seat on each worker of a Dask cluster, and on those that join it.

A seat is a task that is bound to its worker and leaves the worker's threads to others. Where its
worker dies, the next one gets a seat under a new key, since distributed blames a task for each
worker that it has lost, and gives it up at the fourth.
"""

import asyncio
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from functools import partial
from typing import Any

from agent_magics.listening import start_listening
from agent_magics.protocol.errors import FatalError, clause, own_or_typed_message, typed_message
from agent_magics.rows.engines.coordinator import Joined, Serve
from agent_magics.rows.engines.worker import Invitation, sit

# Seconds between two looks at which workers there are.
LOOK = 1.0

NO_SEAT = "The workers of the Dask cluster cannot ask: {error}."
NO_CLIENT = "The client of the Dask cluster is closed, or has lost its scheduler."
IS_OVER = "The work that the cluster was for has ended."


def run_on_worker(task: Callable[..., str], invitation: Invitation, *given: Any) -> str:
    """Run a long task that connects to the kernel, such as `sit`, as a task of Dask."""
    from distributed import get_worker, secede  # noqa: PLC0415 - an extra; here it is running

    security = get_worker().security
    secede()
    tls = None
    if invitation.place.startswith("tls:"):
        tls = security.get_connection_args("worker")["ssl_context"]
    return task(invitation, *given, tls=tls)


class DaskEngine:
    """A Dask cluster as engine; see `Engine`.

    Args:
        client: a `distributed.Client`, also an asynchronous one.
        name: how its tasks are called in Dask's dashboard.

    Attributes:
        client, name: the same.
    """

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name
        self._seats: dict[str, Any] = {}
        self._submitting = threading.Lock()
        self._is_closed = False

    def workers(self) -> int:
        """See `Engine.workers`."""
        with self._telling():
            return len(self.addresses())

    async def listen(self, serve: Serve) -> tuple[asyncio.Server, str]:
        """See `Engine.listen`: where the scheduler reaches this machine, workers do too."""
        comm = getattr(self.client.scheduler_comm, "comm", None)
        if comm is None:
            raise FatalError(NO_CLIENT)
        scheme, _, place = comm.local_address.partition("://")
        host = place.rpartition(":")[0].strip("[]") if scheme in ("tcp", "tls") else "127.0.0.1"
        tls = None
        if scheme == "tls":
            tls = self.client.security.get_listen_args("client")["ssl_context"]
        made = asyncio.start_server(serve, host, 0, ssl=tls, start_serving=False)
        server = await start_listening(made)
        port = server.sockets[0].getsockname()[1]
        scheme = "tls" if tls else "tcp"
        return server, f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def seat(self, invite: Callable[[], Invitation], joined: Joined) -> None:
        """See `Engine.seat`."""
        while True:
            with self._telling():
                await asyncio.to_thread(self._look, invite)
            await asyncio.sleep(LOOK)

    def _look(self, invite: Callable[[], Invitation]) -> None:
        """Give each worker a seat that has none; on a thread, since the cluster may take time."""
        there = self.addresses()
        gone = [address for address in self._seats if address not in there]
        for address, seat in list(self._seats.items()):
            if seat.status == "error":
                error = seat.exception(asynchronous=False)
                if type(error).__name__ != "KilledWorker":
                    raise FatalError(NO_SEAT.format(error=clause(own_or_typed_message(error))))
                gone.append(address)
            elif seat.status in ("lost", "cancelled") or self._has_ended(seat):
                gone.append(address)
        self._cancel([self._seats.pop(address) for address in set(gone)])
        for address in there - self._seats.keys():
            self._submit(address, sit, invite(), workers=[address], allow_other_workers=False)

    def _submit(self, place: str, task: Callable[..., str], *given: Any, **options: Any) -> Any:
        """Start a task, which `close` cancels; on a thread, which may come too late for that.

        Raises:
            RuntimeError: `close` was there before.
        """
        with self._submitting:
            if self._is_closed:
                raise RuntimeError(IS_OVER)
            key = (self.name, uuid.uuid4().hex)
            seat = self.client.submit(run_on_worker, task, *given, key=key, pure=False, **options)
            self._seats[place or key[1]] = seat
        return seat

    def _has_ended(self, seat: Any) -> bool:
        """Return whether its connection broke; one that could not ask gets no other seat.

        Where its worker has just died, there is no answer: the cluster would wait for that worker.
        """
        if seat.status != "finished":
            return False
        ask = partial(self.client.gather, seat, asynchronous=True)
        try:
            return not self.client.sync(ask, asynchronous=False, callback_timeout=LOOK)
        except (TimeoutError, CancelledError):  # the next look finds the worker gone, or alive
            return False

    def addresses(self) -> set[str]:
        """Return those of the workers that there are now; may wait for the cluster."""
        return set(self.client.nthreads(asynchronous=False))

    def _cancel(self, seats: list[Any]) -> None:
        if seats:
            self.client.cancel(seats, asynchronous=False, force=True)

    async def start(
        self, task: Callable[..., str], invitation: Invitation, given: Any
    ) -> "asyncio.Future[str]":
        """See `Engine.start`."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()

        def tell(seat: Any) -> None:
            """Say how it ended; on a thread of the client's."""
            failed = seat.status == "error"
            error = seat.exception(asynchronous=False) if failed else None
            if not failed and seat.status != "finished":
                error = FatalError(f"the task is {seat.status}")
            loop.call_soon_threadsafe(settle, error)

        def settle(error: BaseException | None) -> None:
            if ended.done():
                return
            if error is None:
                ended.set_result("")
            else:
                ended.set_exception(error)
                ended.exception()  # looked at, also where nobody waits any more

        with self._telling():
            seat = await asyncio.to_thread(self._submit, "", task, invitation, given)
        seat.add_done_callback(tell)
        return ended

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell people of errors of the client, or of what is pickled, which may have any class."""
        try:
            yield
        except FatalError:
            raise
        except Exception as error:
            is_there = self.client.status == "running"
            words = NO_SEAT.format(error=clause(typed_message(error))) if is_there else NO_CLIENT
            raise FatalError(words) from None

    async def close(self) -> None:
        """See `Engine.close`."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        with self._submitting:
            self._is_closed = True
        if self.client.status == "running":
            self._cancel(list(self._seats.values()))
