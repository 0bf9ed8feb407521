"""A map that is interrupted in a kernel: workers ask no more, and what was answered is kept."""

import pytest

from tests.support.kernels.driver import Kernel
from tests.support.models.batch_server import BatchServer
from tests.support.models.row_server import RowServer
from tests.support.rows.clusters import cluster
from tests.support.rows.watchers import wait_until

pytestmark = pytest.mark.soak
# The server holds its answers once it has given `HELD`, so that no map ends before it is stopped.
ROWS, HELD = 2000, 400
# The interrupt is what a front end sends, at the moment when the server has so many requests.
SETUP = """
%load_ext agent_magics
import json, multiprocessing, os, signal, threading, time, urllib.request
from concurrent.futures import ProcessPoolExecutor
from agent_magics import Agent

rows = [f"row {{number}}" for number in range({rows})]
agent = Agent("gpt-4o-mini", base_url={url!r}, api_key="sk-x")
get_ipython().magics_manager.registry["AgentMagics"].agents["default"] = agent
engine = {engine}

def press():
    url = {url!r}.removesuffix("v1")
    while {holds!r} not in urllib.request.urlopen(url + {path!r}).read().decode():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)
    urllib.request.urlopen(url + "more?count={held}", b"")  # what is under way ends
"""
ENGINES = {
    "here": "None",
    "pool": "ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('spawn'))",
    "dask": "__import__('distributed').Client({scheduler!r})",
}
# Waits until its workers do nothing more.
IDLE = {
    "here": "",
    "pool": "engine.shutdown()",
    "dask": "engine.gather([engine.submit(int, workers=[worker], pure=False)"
    " for worker in engine.scheduler_info(-1)['workers']])",
}
CALL = "agent.map{sync}('Say {{{{text}}}}', rows, ask_above=None, {options})"
CELLS = {
    "magic": "%%agent --map rows --ask-above 1e9 {magic}\nSay {{{{text}}}}\n",
    "blocks": f"done = {CALL.replace('{sync}', '_sync')}",
    "awaits": f"done = await {CALL.replace('{sync}', '')}",
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with Kernel(cwd=str(tmp_path_factory.mktemp("map"))) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def scheduler():
    with cluster() as client:
        yield client.scheduler.address


def begin(kernel, server, engine, **when):
    """Make the agent, the engine, and what interrupts."""
    setup = SETUP.format(rows=ROWS, held=HELD, url=server.base_url, engine=engine, **when)
    outcome = kernel.run(setup)
    assert outcome.status == "ok", outcome.text


def interrupted(kernel, cell):
    """Run a cell that is interrupted."""
    pressing = "pressing = threading.Thread(target=press); pressing.start()"
    assert kernel.run(pressing).status == "ok"
    kernel.run(cell, notebook=True)
    assert kernel.run("pressing.join()").status == "ok"


def settled(kernel, server, kind):
    """Return what was asked by workers that ask no more."""
    assert kernel.run(IDLE[kind]).status == "ok"
    before, asked = None, server.prompts()
    while asked != before:  # what was sent comes in
        before, asked = asked, server.prompts()
    return asked


# A thread and a process, and two kinds of cell; all other pairs are long.
SHORT = {("here", "magic"), ("pool", "blocks")}
PAIRS = [
    pytest.param(kind, cell, marks=() if (kind, cell) in SHORT else pytest.mark.long)
    for kind in ENGINES
    for cell in CELLS
]


@pytest.mark.parametrize(("kind", "cell"), PAIRS)
def test_an_interrupt_ends_the_asking_and_keeps_the_answers(kernel, request, kind, cell):
    scheduler = request.getfixturevalue("scheduler") if kind == "dask" else ""
    with RowServer(delay=0.1, holds=HELD) as server:
        engine = ENGINES[kind].format(scheduler=scheduler)
        begin(kernel, server, engine, path="log", holds="row 300")
        magic = "" if kind == "here" else "--engine engine"
        interrupted(kernel, CELLS[cell].format(magic=magic, options="engine=engine"))
        asked = settled(kernel, server, kind)
        assert "Say row 300" in asked and len(asked) < ROWS and set(asked.values()) == {1}
        server.answer_more()
        again = "done = agent.map_sync('Say {{text}}', rows, ask_above=None)"
        assert kernel.run(again).status == "ok"
        kept = int(kernel.value("done.progress.kept"))
        counts = server.prompts()
        kernel.run("engine.close()" if kind == "dask" else "")
    # What is not kept was under way.
    assert kept and sum(counts.values()) - len(counts) == len(asked) - kept
    assert len(counts) == ROWS


def test_a_map_in_the_background_is_stopped_by_a_command(kernel):
    with RowServer(delay=0.1, holds=HELD) as server:
        begin(kernel, server, ENGINES["pool"], path="log", holds="row 300")
        magic = "--engine engine --background --into kept"
        assert kernel.run(CELLS["magic"].format(magic=magic)).status == "ok"
        wait_until(lambda: len(server.log()) > 300)
        assert kernel.run("%agent stop").status == "ok"
        server.answer_more(HELD)
        while kernel.run("kept").status != "ok":  # it is bound when the map has ended
            pass
        asked = settled(kernel, server, "pool")
        assert len(asked) < ROWS
        assert 100 < int(kernel.value("kept.answer.notna().sum()")) <= len(asked)


@pytest.mark.parametrize(
    "cell",
    ["magic", *(pytest.param(cell, marks=pytest.mark.long) for cell in ("blocks", "awaits"))],
)
def test_an_interrupt_leaves_a_batch_with_the_provider(kernel, cell):
    with BatchServer(stays="in_progress") as server:
        begin(kernel, server, "None", path="batches", holds="in_progress")
        code = CELLS[cell].format(magic="--batch", options="batch=True")
        interrupted(kernel, code)
        server.release()
        again = "done = agent.map_sync('Say {{text}}', rows, ask_above=None, batch=True)"
        assert kernel.run(again).status == "ok"
        assert kernel.value("len(done.failed)") == "0"
        assert set(server.prompts().values()) == {1} and len(server.batches()) == 1
