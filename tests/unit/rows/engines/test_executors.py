"""A map in the processes of an executor."""

import asyncio
import multiprocessing
import os
import signal
import tempfile
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import ipyparallel
import pytest

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.engines.executors import ExecutorEngine
from agent_magics.rows.engines.worker import Invitation
from tests.support.models.row_server import RowServer
from tests.support.ports import free_port
from tests.support.rows.echo import Echo
from tests.support.rows.watchers import When
from tests.support.turns import PATIENCE

SPAWN = multiprocessing.get_context("spawn")
pytestmark = pytest.mark.soak


def agent_for(server, **given):
    return Agent(base_url=server.base_url, api_key="sk-x", model="gpt-4o-mini", **given)


def rows(number):
    return [f"row {n}" for n in range(number)]


def test_spawned_processes_ask():
    with RowServer() as server, ProcessPoolExecutor(2, mp_context=SPAWN) as pool:
        with agent_for(server) as agent:
            done = agent.map_sync("{{text}}", rows(300), engine=pool, ask_above=None)
        # The pool is free again for other work.
        assert pool.submit(os.getpid).result() != os.getpid()
        asked = Counter(entry["last"] for entry in server.log())
    assert list(done.frame["answer"]) == rows(300)
    assert set(asked.values()) == {1}


def test_threads_ask_too():
    with RowServer() as server, ThreadPoolExecutor(2) as pool, agent_for(server) as agent:
        done = agent.map_sync("{{text}}", rows(100), engine=pool)
        assert pool.submit(threading.get_ident).result()
    assert list(done.frame["answer"]) == rows(100)


def test_a_broken_pool_ends_it_with_what_there_is():
    def kill(_):
        os.kill(min(pool._processes), signal.SIGKILL)

    with RowServer(holds=100) as server, agent_for(server) as agent:
        with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
            options = {"engine": pool, "concurrency": 10, "ask_above": None}
            done = agent.mapping("{{text}}", rows(500), output=None, options=options).wait_sync(
                When([100], kill)
            )
        assert "cannot ask" in done.stopped
        kept = int(done.frame["answer"].notna().sum())
        assert kept == 100
        server.answer_more()
        again = agent.map_sync("{{text}}", rows(500), ask_above=None)
        asked = Counter(entry["last"] for entry in server.log())
    assert again.progress.kept == kept and not len(again.failed)
    assert sum(asked.values()) <= 500 + 10


def waiting_pool():
    """Return a pool whose only thread has something else to do, and what ends that."""
    pool, free = ThreadPoolExecutor(1), threading.Event()
    pool.submit(free.wait, PATIENCE)
    return pool, free


def test_a_pool_that_is_shut_down_while_a_seat_waits_ends_it():
    pool, free = waiting_pool()

    async def seat():
        engine, is_invited = ExecutorEngine(pool), asyncio.Event()

        def invite():
            is_invited.set()
            return Invitation("", 1, "token")

        async def join(_):
            await asyncio.Event().wait()

        seating = asyncio.create_task(engine.seat(invite, join))
        await is_invited.wait()
        pool.shutdown(wait=False, cancel_futures=True)
        with pytest.raises(FatalError, match="ThreadPoolExecutor cannot ask: its tasks were"):
            await seating
        await engine.close()

    asyncio.run(seat())
    free.set()
    pool.shutdown()


def test_a_folder_for_temporary_files_may_have_a_long_path(tmp_path, monkeypatch):
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with RowServer() as server, ThreadPoolExecutor(1) as pool, agent_for(server) as agent:
        done = agent.map_sync("{{text}}", rows(1), engine=pool)
    assert list(done.frame["answer"]) == rows(1)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("kind", ["fork", "none"])
def test_what_cannot_be_an_engine_is_refused_in_one_sentence(kind):
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    given, words = {"fork": (pool, "forks its processes"), "none": (3, "engine=3: it takes")}[kind]
    with RowServer() as server, agent_for(server) as agent:
        with pytest.raises(FatalError, match=words):
            agent.map_sync("{{text}}", ["a"], engine=given)
        assert not server.log()


def test_a_model_object_stays_in_its_process():
    words = "a model object is in this process only"
    with (
        Agent(Echo()) as agent,
        ThreadPoolExecutor(1) as pool,
        pytest.raises(FatalError, match=words),
    ):
        agent.map_sync("{{text}}", ["a"], engine=pool)


def test_an_executor_of_ipyparallel_is_one(monkeypatch, tmp_path):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    ports = ",".join(str(free_port()) for _ in range(30))  # it opens some 17, and some later
    given = [f"--IPController.ports={ports}"]
    two = ipyparallel.Cluster(n=2, engines="local", log_level=40, controller_args=given)
    with RowServer() as server, agent_for(server) as agent, two as parallel:
        engine = parallel.load_balanced_view().executor
        done = agent.map_sync("{{text}}", rows(200), engine=engine, ask_above=None)
    assert list(done.frame["answer"]) == rows(200)
