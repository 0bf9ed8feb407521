"""A map that is killed at any moment: what was answered is not asked again, no row is lost."""

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

from agent_magics import Agent
from tests.support.models.batch_server import BatchServer
from tests.support.models.row_server import RowServer
from tests.support.rows.clusters import cluster
from tests.support.rows.watchers import wait_until

MAP = """
import sys
from agent_magics import Agent

agent = Agent("gpt-4o-mini", base_url=sys.argv[1], api_key="sk-map-0123456789abcdefghij")
rows = [f"row {number}" for number in range(int(sys.argv[3]))]
options = {"batch": True} if sys.argv[4:] == ["batch"] else {}
if sys.argv[4:] and not options:
    from dask.distributed import Client

    options = {"engine": Client(sys.argv[4])}
agent.map_sync("{{text}}", rows, ask_above=None, cache=sys.argv[2], concurrency=20, **options)
"""
KEY = "sk-map-0123456789abcdefghij"
AT_ONCE = 20


@pytest.mark.soak
@pytest.mark.parametrize(
    "moments",
    [[30, 800], pytest.param([30, 200, 350, 800, 1200], marks=pytest.mark.long)],
    ids=["two", "five"],
)
def test_a_killed_map_goes_on_where_it_was(tmp_path, moments):
    check_kills(tmp_path, moments, rows=2000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_map_is_killed_at_a_hundred_random_moments(tmp_path):
    moments = sorted(random.randrange(1, 4000) for _ in range(100))
    check_kills(tmp_path, moments, rows=4000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_map_of_a_cluster_is_killed_at_thirty_random_moments(tmp_path, monkeypatch):
    """Its workers, which live on, end what they ask for a kernel that is gone."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    moments = sorted(random.randrange(1, 2000) for _ in range(30))
    with cluster() as client:
        check_kills(tmp_path, moments, 2000, client.scheduler.address)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_batch_map_is_killed_at_thirty_random_moments(tmp_path):
    """No row is in two batches, whether a kill came before or after the provider began one.

    Each call has ten more rows than the one before it.
    """
    cache, texts = tmp_path / "answers.sqlite", [f"row {number}" for number in range(300)]
    with BatchServer(key=KEY) as server:
        for rows in range(10, 301, 10):
            command = [sys.executable, "-c", MAP, server.base_url, str(cache), str(rows), "batch"]
            with subprocess.Popen(command) as killed:
                with suppress(subprocess.TimeoutExpired):
                    killed.wait(random.uniform(0.2, 4))
                killed.send_signal(signal.SIGKILL)
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            done = agent.map_sync("{{text}}", texts, ask_above=None, cache=cache, batch=True)
        sent = [server.files()[int(each["input_file_id"][5:])] for each in server.batches()]
        assert {entry["outcome"] for entry in server.log()} == {"batch"}
    assert list(done.frame["answer"]) == texts
    asked = Counter(json.loads(line)["custom_id"] for file in sent for line in file.splitlines())
    assert set(asked.values()) == {1} and len(asked) == 300


def check_kills(tmp_path, moments: Sequence[int], rows: int, *more: str) -> None:
    """Kill a map when so many requests came; then run it to its end, and compare the books."""
    cache, texts = tmp_path / "answers.sqlite", [f"row {number}" for number in range(rows)]
    with RowServer(delay=0.02) as server:
        for moment in moments:
            command = [sys.executable, "-c", MAP, server.base_url, str(cache), str(rows), *more]
            with subprocess.Popen(command) as killed:
                wait_until(
                    lambda moment=moment, killed=killed: (
                        len(server.log()) >= moment or killed.poll() is not None
                    )
                )
                killed.send_signal(signal.SIGKILL)
        with Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent:
            done = agent.map_sync("{{text}}", texts, ask_above=None, cache=cache, concurrency=20)
        wait_until(lambda: all(entry["tokens"] for entry in server.log()))
        asked = Counter(entry["last"] for entry in server.log())
    assert list(done.frame["answer"]) == texts and len(asked) == rows
    # What was paid for is in the table, but for what was in flight at a kill: asked, or answered
    # in the 50 ms that a group of answers waits to be written; a busy machine takes longer once.
    assert set(done.frame["tokens"]) == {30}
    assert sum(asked.values()) - rows <= (len(moments) + 2) * 2 * AT_ONCE
