"""Chooses the engine for what was given as ``engine=``."""

import sys
from concurrent.futures import Executor
from typing import Any

from agent_magics.model_clients import ModelClients, recording_path
from agent_magics.models.access import ServerAccess
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.engines.coordinator import Engine
from agent_magics.rows.engines.dask import DaskEngine
from agent_magics.rows.engines.executors import ExecutorEngine
from agent_magics.rows.engines.partitions import Partitions
from agent_magics.rows.engines.worker import ModelSource
from agent_magics.rows.tables.sources import framed

NO_ENGINE = (
    "engine={given!r}: it takes a client of a Dask cluster (distributed.Client), or an executor of "
    "processes (concurrent.futures.Executor, also that of an ipyparallel client)."
)
NOT_THERE = "engine= needs a model server or a recording; {what} is in this process only."


def check_portable(settings: Settings, models: ModelClients) -> None:
    """Check that the model of an agent can be asked from other processes.

    Raises:
        FatalError: it cannot.
    """
    if models.given is not None:
        raise FatalError(NOT_THERE.format(what="a model object"))
    if settings.record:
        raise FatalError(NOT_THERE.format(what="the file that a recording is written to"))


async def source_of(settings: Settings) -> ModelSource:
    """Return where workers find the model of an agent.

    Raises:
        FatalError: there is no key for the server.
    """
    recording = recording_path(settings.replay) if settings.replay else None
    if recording is not None:
        path, cwd = str(recording.absolute()), str(settings.cwd)
        return ModelSource(recording=path, cwd=cwd, strict=settings.replay_strict)
    access = ServerAccess(settings.api_key, settings.base_url)
    return ModelSource(access.address, await access.key(), settings.wire_api)


def partitions_of(rows: Any, engine: Engine | None) -> Partitions | None:
    """Return the partitions of a Dask frame or series where the engine is such a cluster."""
    if type(rows).__module__.startswith("dask.dataframe") and isinstance(engine, DaskEngine):
        is_series = type(rows).__name__ == "Series"
        return Partitions(framed(rows) if is_series else rows, engine)
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
