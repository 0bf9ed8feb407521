"""A Dask cluster of processes on this machine, whose workers can be killed."""

import os
import signal
import time
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
    """Kill one of the workers that their nannies would replace; wait until there is one.

    The machine's lack of memory would kill so too. A nanny replaces none that it still starts.
    """
    while not (running := [each for each in nannies(client) if is_running(each)]):
        time.sleep(0.01)
    chosen = running[number % len(running)]
    killed = chosen.pid
    os.kill(killed, signal.SIGKILL)
    while is_running(chosen) and chosen.pid == killed:
        time.sleep(0.01)


def nannies(client: distributed.Client) -> list[distributed.Nanny]:
    """Return what starts the workers of a cluster of this machine."""
    return list(client.cluster.workers.values())


def is_running(nanny: distributed.Nanny) -> bool:
    """Tell whether the nanny has started its worker."""
    return nanny.process is not None and nanny.process.status is distributed.Status.running
