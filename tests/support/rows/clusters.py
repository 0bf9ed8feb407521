"""A Dask cluster of processes on this machine, whose workers can be killed."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed


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
