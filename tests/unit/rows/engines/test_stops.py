"""A map that is stopped sends nothing more, wherever it asks; what was sent is kept."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext

import pytest

from agent_magics import Agent
from tests.support.models.row_server import RowServer
from tests.support.rows.watchers import When, wait_until
from tests.support.turns import PATIENCE

pytestmark = pytest.mark.soak
AT_ONCE, ROWS = 100, [f"row {number}" for number in range(3000)]


def engine(kind, client):
    if kind == "pool":
        return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    return nullcontext(client if kind == "dask" else None)


@pytest.mark.parametrize("kind", ["here", "pool", "dask"])
def test_a_stop_sends_nothing_more(kind, client, monkeypatch):
    """The server holds its answers, so that no place is free at the moment of the stop."""
    monkeypatch.setattr(
        "agent_magics.rows.job.GRACE", PATIENCE
    )  # a machine that is busy answers late
    sent = []

    def stop(job):
        if kind != "here":  # each has been given rows ahead of those that it asks
            wait_until(lambda: len([each for each in job.asker._workers if each.held]) == 2)
        wait_until(lambda: job.asker.pace().in_flight >= AT_ONCE / 2)
        agent.session.engine.post(job.stop)
        wait_until(lambda: job.stopped and job.progress.in_flight <= len(server.log()))
        sent.append(len(server.log()))
        server.answer_more()

    with (
        RowServer(holds=1) as server,
        engine(kind, client) as workers,
        Agent(base_url=server.base_url, api_key="sk-x", model="gpt-4o-mini") as agent,
    ):
        options = {"engine": workers, "concurrency": AT_ONCE, "ask_above": None}
        mapping = agent.mapping("{{text}}", ROWS, output=None, options=options)
        done = mapping.wait_sync(When([1], stop))
        asked = server.prompts()
    assert sum(asked.values()) <= sent[0] + 1  # the first question of a worker goes alone
    assert set(done.frame["answer"].dropna()) == set(asked)
    others = done.frame["error"].dropna()
    assert len(others) == len(ROWS) - len(asked)
    assert set(others) == {"not asked: you stopped it"}
