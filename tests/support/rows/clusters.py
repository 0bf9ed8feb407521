"""A Dask cluster of processes on this machine, whose workers can be killed."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import distributed

from agent_magics.rows.job import Job
from agent_magics.rows.mapping import Watcher


@contextmanager
def cluster(workers: int = 2, **options: Any) -> Iterator[distributed.Client]:
    """Run a cluster; yield its client."""
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            **options,
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def kill_worker(client: distributed.Client, number: int = 0) -> None:
    """Kill one worker, as the machine's lack of memory would; its nanny starts another."""
    processes = sorted(client.run(os.getpid).values())
    os.kill(processes[number % len(processes)], signal.SIGKILL)


class When(Watcher):
    """Calls a function with a map's job, on a thread, as soon as so many rows are done.

    Args:
        counts: calls it at each of these counts, in order.
        act: the function.
    """

    def __init__(self, counts: Sequence[int], act: Callable[[Job], object]) -> None:
        self._counts, self._act = counts, act
        self._over = threading.Event()

    def begin(self, job: Job) -> None:
        self._thread = threading.Thread(target=self._wait, args=(job,))
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _wait(self, job: Job) -> None:
        for count in self._counts:
            while job.progress.done < count:
                if self._over.wait(0.01):
                    return
            self._act(job)
