"""Named maps: one that did not end whole is listed, and goes on by the same call."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest

from agent_magics import Agent
from agent_magics.kernel.commands.maps import MAPS, NONE
from agent_magics.protocol.errors import FatalError
from agent_magics.rows import runs
from agent_magics.rows.asking import Terms
from agent_magics.rows.batches.ledger import Ledger
from agent_magics.rows.batches.pack import Pack
from agent_magics.rows.progress import Progress
from agent_magics.rows.runs import OpenMap, Runs, noted
from tests.support.models.row_server import RowServer
from tests.support.rows.watchers import When, wait_until
from tests.support.turns import PATIENCE

KEY = "sk-map-0123456789abcdefghij"
ROWS = [f"row {number}" for number in range(40)]
MAP = """
import sys
import time
from agent_magics import Agent

agent = Agent("gpt-4o-mini", base_url=sys.argv[1], api_key=sys.argv[3])
rows = [f"row {number}" for number in range(40)]
agent.map_sync("{{text}}", rows, name="mine", ask_above=None, cache=sys.argv[2], concurrency=1)
"""


def opened(server):
    return Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY)


def answered(path):
    """Return how many answers the one open run has noted, -1 where there is none."""
    known = Runs(path).all()
    return known[0].answered if known else -1


@pytest.mark.soak
def test_a_run_is_found_after_its_kernel_died(tmp_path, monkeypatch):
    cache = tmp_path / "answers.sqlite"
    with RowServer(holds=10) as server, opened(server) as agent:
        command = [sys.executable, "-c", MAP, server.base_url, str(cache), KEY]
        with subprocess.Popen(command) as killed:
            wait_until(lambda: answered(cache) == 10)
            assert "under way" in MAPS.run(["--cache", str(cache)], None, agent)
            with pytest.raises(FatalError, match="is under way in another kernel"):
                agent.map_sync("{{text}}", ROWS, name="mine", cache=cache)
            assert len(server.log()) == 11  # the one that waits too
            killed.send_signal(signal.SIGKILL)
        monkeypatch.setattr(runs, "EVERY", 0.0)
        listed = MAPS.run(["--cache", str(cache)], None, agent)
        assert "mine" in listed and "| 40 | 10 |" in listed and "its kernel ended" in listed
        server.answer_more()
        monkeypatch.undo()
        with pytest.raises(FatalError, match="'mine' asks gpt-4o-mini something else and has 10"):
            agent.map_sync("Not {{text}}", ROWS, name="mine", cache=cache)
        done = agent.map_sync("{{text}}", ROWS, name="mine", ask_above=None, cache=cache)
        assert done.progress.kept == 10 and not len(done.failed)
        assert MAPS.run(["--cache", str(cache)], None, agent) == NONE
        assert [each.name for each in tmp_path.glob("*-????????????????")] == []


def test_what_cannot_be_cleared_away_costs_no_answer(tmp_path):
    cache = tmp_path / "answers.sqlite"

    def say(row):
        for own in tmp_path.glob("*-????????????????"):
            if own.is_file():
                own.unlink()
                (own / "in the way").mkdir(parents=True)
        return row

    with RowServer() as server, opened(server) as agent:
        done = agent.map_sync(say, ROWS[:3], name="mine", cache=cache)
    assert list(done.frame["answer"]) == ROWS[:3] and not done.stopped
    assert [each.is_dir() for each in tmp_path.glob("*-????????????????")] == [True]


def test_files_of_a_batch_that_cannot_be_removed_stay(tmp_path):
    ledger = Ledger(tmp_path / "answers.sqlite")
    pack = Pack(ledger.folder())
    pack.path.unlink()
    pack.path.mkdir()
    os.utime(pack.path, (0, 0))
    ledger.sweep()
    ledger.remove(pack.token)
    pack.close()
    assert pack.file.closed and pack.path.is_dir()


@pytest.mark.soak
def test_a_stopped_run_is_listed_with_the_reason_until_it_is_forgotten():
    with RowServer() as server, opened(server) as agent:
        agent.map_sync("{{text}}", ROWS, name="mine", max_tokens=300)
        assert "max_tokens=300 is reached" in MAPS.run([], None, agent)
        assert MAPS.run(["forget", "mine"], None, agent) == NONE
        with pytest.raises(FatalError, match="There is no run 'mine'"):
            MAPS.run(["forget", "mine"], None, agent)


@pytest.mark.soak
@pytest.mark.filterwarnings("error")
def test_a_record_that_cannot_be_kept_costs_no_rows(tmp_path, monkeypatch):
    cache, kept = tmp_path / "answers.sqlite", []

    def keep(self, run):
        kept.append(run)
        if len(kept) > 1:
            raise FatalError("The disk is full.")

    monkeypatch.setattr(runs, "EVERY", 0.0)
    monkeypatch.setattr(Runs, "keep", keep)
    monkeypatch.setattr(Runs, "forget", keep)
    with RowServer() as server, opened(server) as agent:
        done = agent.map_sync("{{text}}", ROWS, name="mine", ask_above=None, cache=cache)
    assert len(kept) > 1 and not len(done.failed)
    assert done.progress.done == len(ROWS)


def test_what_is_being_noted_at_the_end_does_not_come_after_it(tmp_path, monkeypatch):
    cache, keep, forget = tmp_path / "answers.sqlite", Runs.keep, Runs.forget
    kept, asked = [], []
    writes, may_write = threading.Event(), threading.Event()

    def keep_late(self, run):
        kept.append(run)
        if len(kept) == 2:
            writes.set()
            may_write.wait(PATIENCE)
        keep(self, run)

    def ask_to_forget(self):
        asked.append(self)
        return partial(forget, self)

    async def let_write():
        for _ in range(20):  # what ends the map takes three steps of the loop
            await asyncio.sleep(0)
        too_early = list(asked)
        may_write.set()
        assert too_early == []

    async def run():
        job = SimpleNamespace(
            progress=Progress(3), plan=SimpleNamespace(terms=Terms("model")), stopped=""
        )
        async with noted(cache, "mine", job, b"digest"):
            await asyncio.to_thread(writes.wait, PATIENCE)
            letting = asyncio.create_task(let_write())
        await letting

    monkeypatch.setattr(runs, "EVERY", 0.0)
    monkeypatch.setattr(Runs, "keep", keep_late)
    monkeypatch.setattr(Runs, "forget", property(ask_to_forget))
    asyncio.run(run())
    assert len(asked) == 1 and Runs(cache).all() == []


@pytest.mark.parametrize("when", ["as it begins", "as it ends"])
def test_a_map_that_is_cancelled_while_it_is_noted_is_not_noted_as_one_that_runs(
    tmp_path, monkeypatch, when
):
    cache, keep = tmp_path / "answers.sqlite", Runs.keep
    writes, may_write = threading.Event(), threading.Event()

    def keep_late(self, run):
        writes.set()
        may_write.wait(PATIENCE)
        keep(self, run)

    async def noting():
        job = SimpleNamespace(
            progress=Progress(3), plan=SimpleNamespace(terms=Terms("model")), stopped=""
        )
        async with noted(cache, "mine", job, b"digest"):
            if when == "as it begins":
                await asyncio.Event().wait()

    async def run():
        map_run = asyncio.create_task(noting())
        await asyncio.to_thread(writes.wait, PATIENCE)
        map_run.cancel()
        for _ in range(20):  # in which it would end
            await asyncio.sleep(0)
        may_write.set()
        await asyncio.wait({map_run})
        assert map_run.cancelled()

    monkeypatch.setattr(Runs, "keep", keep_late)
    asyncio.run(run())
    left = ["it was interrupted"] if when == "as it begins" else []
    assert [each.state for each in Runs(cache).all()] == left


@pytest.mark.soak
def test_the_cost_is_that_of_all_calls(tmp_path):
    cache = tmp_path / "answers.sqlite"
    with RowServer(holds=10) as server, opened(server) as agent:
        options = {"name": "mine", "ask_above": None, "cache": cache, "concurrency": 1}

        def stop(job):
            agent.session.engine.post(job.stop)
            server.answer_more(10)

        for most in (10, 20):
            mapping = agent.mapping("{{text}}", ROWS, output=None, options=options)
            done = mapping.wait_sync(When([most], stop))
            assert done.stopped
        (run,) = Runs(cache).all()
        assert run.cost == pytest.approx(run.answered * done.frame["cost"].max())
        assert run.answered > done.progress.answered > 0


def test_a_name_needs_the_cache():
    refused = pytest.raises(FatalError, match="name= needs a server and the cache")
    with RowServer() as server, opened(server) as agent, refused:
        agent.map_sync("{{text}}", ROWS, name="mine", cache=False)


@pytest.mark.parametrize(("jump", "is_alive"), [(0, True), (-3600, False), (3600, False)])
def test_a_clock_that_jumps_keeps_no_dead_map_alive(jump, is_alive):
    run = OpenMap("mine", b"", "model", 0, int(time.time()) - jump)
    assert run.is_alive == is_alive
