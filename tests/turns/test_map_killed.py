"""A map that is killed at any moment: what was answered is not asked again, no row is lost."""

import signal
import subprocess
import sys
from collections import Counter

import pytest

from agent_magics import Agent
from tests.support.models.row_server import RowServer

MAP = """
import sys
from agent_magics import Agent

agent = Agent("gpt-4o-mini", base_url=sys.argv[1], api_key="sk-map-0123456789abcdefghij")
agent.map_sync("{{text}}", [f"row {number}" for number in range(2000)], ask_above=None,
               cache=sys.argv[2], concurrency=20)
"""
AT_ONCE = 20
KILLS = (30, 200, 350, 800, 1200)


@pytest.mark.soak
def test_a_killed_map_goes_on_where_it_was(tmp_path):
    cache = tmp_path / "answers.sqlite"
    with RowServer() as server:
        for count in KILLS:
            command = [sys.executable, "-c", MAP, server.base_url, str(cache)]
            with subprocess.Popen(command) as killed:
                while len(server.log()) < count and killed.poll() is None:
                    pass
                killed.send_signal(signal.SIGKILL)
        with Agent(
            "gpt-4o-mini", base_url=server.base_url, api_key="sk-map-0123456789abcdefghij"
        ) as agent:
            done = agent.map_sync(
                "{{text}}",
                [f"row {number}" for number in range(2000)],
                ask_above=None,
                cache=cache,
                concurrency=AT_ONCE,
            )
        asked = Counter(entry["last"] for entry in server.log())
        tokens = sum(entry["tokens"] for entry in server.log())
    assert done.frame["error"].isna().all() and len(asked) == 2000
    twice = sum(asked.values()) - 2000
    # In flight, or answered in the moment that a group of answers waits to be written.
    assert twice <= len(KILLS) * 200
    assert 0 <= tokens - done.frame["tokens"].sum() <= twice * 30
