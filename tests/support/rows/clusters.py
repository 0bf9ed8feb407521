"""A Dask cluster of processes on this machine, and workers for it that can be killed."""

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import distributed

WORKER = (sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--no-dashboard")


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


@contextmanager
def mortal_workers(client: distributed.Client, count: int = 2) -> Iterator[Callable[[], None]]:
    """Run workers for a cluster that has none; yield what kills one and starts another.

    The machine's lack of memory would kill so too. They have no nannies, since a nanny whose
    worker dies as it starts ends with it. The one that is killed has joined the cluster.
    """
    names = map(str, itertools.count())
    workers: dict[str, subprocess.Popen[bytes]] = {}

    def start() -> None:
        options = ["--nthreads", "1", "--host", "127.0.0.1", "--name", name := next(names)]
        command = [*WORKER, client.scheduler.address, *options]
        workers[name] = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def kill() -> None:
        while not (joined := workers.keys() & names_of_workers(client)):
            time.sleep(0.01)
        killed = workers.pop(random.choice(sorted(joined)))
        killed.kill()
        killed.wait()
        start()

    try:
        for _ in range(count):
            start()
        yield kill
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()


def names_of_workers(client: distributed.Client) -> set[str]:
    """Return how the workers are called that have joined."""
    return {str(worker["name"]) for worker in client.scheduler_info(-1)["workers"].values()}
