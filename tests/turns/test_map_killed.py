"""A map that is killed at any moment: what was answered is not asked again, no row is lost."""

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from agent_magics import Agent
from tests.support.models.row_server import RowServer
from tests.support.rows.watchers import wait_until

MAP = """
import sys
from agent_magics import Agent

agent = Agent("gpt-4o-mini", base_url=sys.argv[1], api_key="sk-map-0123456789abcdefghij")
rows = [f"row {number}" for number in range(int(sys.argv[3]))]
agent.map_sync("{{text}}", rows, ask_above=None, cache=sys.argv[2], concurrency=20)
"""
AT_ONCE = 20


@pytest.mark.soak
def test_a_killed_map_goes_on_where_it_was(tmp_path):
    check_kills(tmp_path, [30, 200, 350, 800, 1200], rows=2000)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_map_is_killed_at_a_hundred_random_moments(tmp_path):
    moments = sorted(random.randrange(1, 4000) for _ in range(100))
    check_kills(tmp_path, moments, rows=4000)


def check_kills(tmp_path, moments: Sequence[int], rows: int) -> None:
    """Kill a map when so many requests came; then run it to its end, and compare the books."""
    cache, texts = tmp_path / "answers.sqlite", [f"row {number}" for number in range(rows)]
    with RowServer(delay=0.02) as server:
        for moment in moments:
            command = [sys.executable, "-c", MAP, server.base_url, str(cache), str(rows)]
            with subprocess.Popen(command) as killed:
                wait_until(
                    lambda moment=moment, killed=killed: (
                        len(server.log()) >= moment or killed.poll() is not None
                    )
                )
                killed.send_signal(signal.SIGKILL)
        with Agent(
            "gpt-4o-mini", base_url=server.base_url, api_key="sk-map-0123456789abcdefghij"
        ) as agent:
            done = agent.map_sync("{{text}}", texts, ask_above=None, cache=cache, concurrency=20)
        wait_until(lambda: all(entry["tokens"] for entry in server.log()))
        asked = Counter(entry["last"] for entry in server.log())
    assert list(done.frame["answer"]) == texts and len(asked) == rows
    # What was paid for is in the table, but for what was in flight at a kill: asked, or answered
    # in the moment that a group of answers waits to be written.
    assert set(done.frame["tokens"]) == {30}
    assert sum(asked.values()) - rows <= len(moments) * 2 * AT_ONCE
