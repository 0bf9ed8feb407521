"""A thread pool for tools: threads start on demand, are reused, and never delay the exit."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

Ts = TypeVarTuple("Ts")
R = TypeVar("R")

# A job and its future, of any result type.
_Job: TypeAlias = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]


class ThreadPool:
    """Runs every job at once: on an idle thread, else on a new one.

    There is no limit, since jobs that wait for other jobs would deadlock; the threads are daemons,
    since a tool that hangs must not keep the program from ending. The standard library's pool has a
    limit and is waited for.

    Args:
        name: the prefix of the threads' names.
        idle_limit: seconds after which a thread without work ends.
    """

    def __init__(self, name: str, idle_limit: float = 10.0) -> None:
        self._name = name
        self._idle_limit = idle_limit
        self.forget_threads()

    def forget_threads(self) -> None:
        """Reset the pool in a forked child, which has none of its parent's threads."""
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._free = 0  # threads that wait for a job and have not been given one

    def submit(self, fn: Callable[[*Ts], R], *args: *Ts) -> "Future[R]":
        """Run ``fn(*args)`` on a thread; the future gets its result or exception.

        Raises:
            RuntimeError: the system cannot start another thread.
        """
        future: Future[R] = Future()
        with self._lock:
            is_free = self._free > 0
            if is_free:
                self._free -= 1
        if not is_free:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        # Not passed to the thread as an argument, which would reference it as long as it lives.
        self._jobs.put((future, fn, args))
        return future

    def _work(self) -> None:
        job = self._next_job()
        while job is not None:
            _run(*job)
            job = None  # its objects must not live until the next job arrives
            with self._lock:
                self._free += 1
            job = self._next_job()

    def _next_job(self) -> _Job | None:
        while True:
            try:
                return self._jobs.get(timeout=self._idle_limit)
            except Empty:
                with self._lock:
                    if self._free > 0:
                        self._free -= 1
                        return None
                # A job was assigned to this thread just now: it arrives at once.


def _run(future: "Future[Any]", fn: Callable[..., Any], args: tuple[object, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = fn(*args)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)


async def run_on_thread(fn: Callable[..., Any], *args: Any) -> Any:
    """Await ``fn(*args)`` on a thread of the pool; raise what it raises, of every kind.

    asyncio's own executor cannot pass on a `StopIteration`, and would wait for ever.
    """

    def run() -> tuple[Any, BaseException | None]:
        try:
            return fn(*args), None
        except BaseException as error:
            return None, error

    value, error = await asyncio.wrap_future(POOL.submit(run))
    if isinstance(error, StopIteration):  # no coroutine can raise it
        raise RuntimeError("raised StopIteration") from error
    if error is not None:
        raise error
    return value


POOL = ThreadPool("agent-tool")
os.register_at_fork(after_in_child=POOL.forget_threads)
