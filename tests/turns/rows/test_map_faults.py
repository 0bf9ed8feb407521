"""A map with failing answers, bad rows, or a full disk: every row is accounted for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_magics import Agent
from agent_magics.models.retry import RetryPolicy
from agent_magics.rows.remote import gate
from agent_magics.rows.remote.client import RowClient
from tests.support.models.row_server import RowServer

pytestmark = pytest.mark.soak

KEY = "sk-map-0123456789abcdefghij"
BAD = {
    3: (None, "missing"),
    5: (float("nan"), "missing"),
    7: ("\ud800", "surrogate"),
    9: ("x" * (10 << 20), "characters"),
}


KINDS = ["429", "500", "529", "silence", "garbage", "half", "cut"]
MIXED = "429 500 529 garbage"


@pytest.mark.parametrize("faults", [*KINDS, MIXED])
def test_every_row_is_accounted_for_where_a_fifth_of_the_answers_is_none(
    tmp_path, monkeypatch, faults
):
    """With all of them at once, four of five are none."""
    defaults = RowClient.__init__.__kwdefaults__
    # As often as a person's, but sooner.
    monkeypatch.setitem(defaults, "retries", RetryPolicy(first_delay=0.01))
    monkeypatch.setattr(gate, "FIRST_PAUSE", 0.01)
    if faults == "silence":
        monkeypatch.setitem(defaults, "timeout", 0.3)
    rows = [BAD[number][0] if number in BAD else f"row {number}" for number in range(120)]
    with (
        RowServer(faults=dict.fromkeys(faults.split(), 0.2)) as server,
        Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY) as agent,
    ):
        done = agent.map_sync("{{text}}", rows, cache=tmp_path / "a", ask_above=None)
        requests = server.log()
    answers = [entry for entry in requests if entry["outcome"] == "answered"]
    counted = sum(entry["tokens"] for entry in answers)
    errors = done.frame["error"]
    for number, (_, words) in BAD.items():
        assert words in errors[number]
    asked = done.frame.drop(index=list(BAD))
    answered = asked[asked["error"].isna()]
    assert list(answered["answer"]) == [f"row {number}" for number in answered.index]
    assert len(done.frame) == 120
    # Each row that has an answer shows its tokens, and no other one has any.
    assert done.frame["tokens"].sum() == done.progress.tokens == 30 * len(answered)
    if faults == "silence":
        # How many were late says how fast the machine is; an answer that came too late is counted
        # by the server alone.
        assert set(done.progress.kinds()) <= {"bad row", "timed out"}
        silent = [entry for entry in requests if entry["outcome"] == "silence"]
        assert silent and counted >= done.progress.tokens > 0
    else:
        assert len(answered) >= (1 if faults == MIXED else 110)
        assert counted == done.progress.tokens
    assert done.frame["cost"].sum() == pytest.approx(done.cost)


FULL = """
import resource, signal, sys
from agent_magics import Agent

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
agent = Agent("gpt-4o-mini", base_url=sys.argv[1], api_key=sys.argv[3])
agent.map_sync("{{text}}", ["warm"], cache=sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
done = agent.map_sync("{{text}}" + "x" * 500, [f"row {number}" for number in range(3000)],
                      cache=sys.argv[2], ask_above=None, concurrency=20)
frame = done.frame
print(len(frame), frame["error"].notna().sum(), frame["answer"].notna().sum(), done.stopped)
"""


def test_a_full_disk_ends_it_with_what_there_is(tmp_path):
    cache = tmp_path / "answers.sqlite"
    root = str(Path(__file__).parents[3])
    with RowServer() as server:
        ended = subprocess.run(
            [sys.executable, "-c", FULL, server.base_url, str(cache), KEY],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": root},
            check=True,
        )
        counted = len([entry for entry in server.log() if entry["outcome"] == "answered"])
    rows, failed, answered, reason = ended.stdout.split(maxsplit=3)
    assert int(rows) == 3000 and int(answered) > 0
    assert "answers cannot be kept" in reason
    # Answers that came but could not be written are in the table too, so nothing paid for is lost.
    assert int(failed) + int(answered) == 3000
    assert 0 <= counted - 1 - int(answered) <= 20
