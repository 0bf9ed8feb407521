"""Chooses the engine for what was given as ``engine=``."""

import sys
from concurrent.futures import Executor
from typing import Any

from agent_magics.protocol.errors import FatalError
from agent_magics.rows.engines.coordinator import Engine
from agent_magics.rows.engines.dask import DaskEngine
from agent_magics.rows.engines.executors import ExecutorEngine
from agent_magics.rows.engines.partitions import Partitions

NO_ENGINE = (
    "engine={given!r}: it takes a client of a Dask cluster (distributed.Client), or an executor of "
    "processes (concurrent.futures.Executor, also that of an ipyparallel client)."
)


def partitions_of(rows: Any, engine: Engine | None) -> Partitions | None:
    """Return a Dask frame's partitions where the engine is such a cluster, else None."""
    if type(rows).__module__.startswith("dask.dataframe") and isinstance(engine, DaskEngine):
        return Partitions(rows, engine)
    return None


def engine_of(given: Any, name: str) -> Engine:
    """Return the engine.

    Args:
        given: a `distributed.Client` or its executor, or any other executor.
        name: how its tasks are called in dashboards.

    Raises:
        FatalError: it is none, or one that forks.
    """
    distributed: Any = sys.modules.get("distributed")  # not imported: whoever has a client did it
    if distributed is not None:
        if isinstance(given, distributed.cfexecutor.ClientExecutor):
            given = given._client
        if isinstance(given, distributed.Client):
            return DaskEngine(given, name)
    if isinstance(given, Executor):
        return ExecutorEngine(given)
    raise FatalError(NO_ENGINE.format(given=given))
