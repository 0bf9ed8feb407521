"""A Dask cluster of processes on this machine, and workers for it that can be killed.

They are forks of one process that has imported what workers import, which takes longer than all
else of a start; it ends with this one.
"""

import asyncio
import itertools
import logging
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, get_context
from multiprocessing.process import BaseProcess
from typing import Any

import dask
import distributed

dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
_MODULES = [
    *("distributed", "distributed.nanny", "dask.dataframe", "aiohttp", "pyarrow.parquet"),
    *("openai.resources.chat", "openai.resources.responses"),
    *("agent_magics.rows.engines.dask", "agent_magics.rows.engines.partitions"),
]
# Those of the test that starts a worker; the process that forks it has those of its own start.
_OWN = ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")


@contextmanager
def cluster(workers: int = 2, **options: Any) -> Iterator[distributed.Client]:
    """Run a cluster; yield its client."""
    forkserver.set_forkserver_preload(_MODULES)
    forkserver.ensure_running()  # before distributed names modules of its own
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            env=_environment(),
            **options,
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in _OWN}


@contextmanager
def mortal_workers(client: distributed.Client, count: int = 2) -> Iterator[Callable[[], None]]:
    """Run workers for a cluster that has none; yield what kills one and starts another.

    The machine's lack of memory would kill so too. They have no nannies, since a nanny whose
    worker dies as it starts ends with it. The one that is killed has joined the cluster.
    """
    names = map(str, itertools.count())
    workers: dict[str, BaseProcess] = {}
    forks = get_context("forkserver")

    def start() -> None:
        given = (client.scheduler.address, name := next(names), _environment())
        workers[name] = forks.Process(target=_work, args=given)
        workers[name].start()

    def kill() -> None:
        while not (joined := workers.keys() & names_of_workers(client)):
            time.sleep(0.01)
        killed = workers.pop(random.choice(sorted(joined)))
        killed.kill()
        killed.join()
        start()

    try:
        for _ in range(count):
            start()
        yield kill
    finally:
        for worker in workers.values():
            worker.kill()
            worker.join()


def _work(scheduler: str, name: str, environment: dict[str, str]) -> None:
    """Be a worker until killed."""
    os.environ.update(environment)
    logging.disable()

    async def run() -> None:
        async with distributed.Worker(
            scheduler, name=name, nthreads=1, host="127.0.0.1", dashboard=False
        ) as worker:
            await worker.finished()

    asyncio.run(run())


def names_of_workers(client: distributed.Client) -> set[str]:
    """Return how the workers are called that have joined."""
    return {str(worker["name"]) for worker in client.scheduler_info(-1)["workers"].values()}
