"""`%agent map`: what is at batch APIs is listed, fetched and cancelled."""

import pytest

from agent_magics import Agent
from agent_magics.kernel.commands.maps import MAPS, NONE
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.batches import job as batch_job
from agent_magics.rows.batches.ledger import Ledger
from agent_magics.rows.store import cache_file
from tests.support.models.batch_server import BatchServer
from tests.support.rows.watchers import stop_at

KEY = "sk-map-0123456789abcdefghij"


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr(batch_job, "FIRST_LOOK", 0.01)


def opened(server):
    return Agent("gpt-4o-mini", base_url=server.base_url, api_key=KEY)


def mapped(agent, stops_at=""):
    options = {"batch": True, "ask_above": None}
    rows = [f"row {number}" for number in range(40)]
    mapping = agent.mapping("{{text}}", rows, output=None, options=options)
    return mapping.wait_sync(stop_at(agent, stops_at) if stops_at else None)


@pytest.mark.soak
def test_results_are_fetched_without_the_rows_and_taken_in_by_the_map():
    with BatchServer(stays="in_progress") as server, opened(server) as agent:
        assert MAPS.run([], None, agent) == NONE
        mapped(agent, stops_at="in_progress")
        assert "in progress" in MAPS.run(["resume"], None, agent)
        server.release()
        while "its results are here" not in MAPS.run(["resume"], None, agent):
            pass
        address = server.base_url
        assert "| gpt-4o-mini |" in MAPS.run([], None, agent).replace("`", "")
        done = mapped(agent)
        assert len(server.log()) == 40 and address == server.base_url
        assert MAPS.run([], None, agent) == NONE
    assert not len(done.failed)
    folder = Ledger(cache_file()).folder()
    assert folder.stat().st_mode & 0o777 == 0o700 and not list(folder.iterdir())


@pytest.mark.soak
@pytest.mark.parametrize("login", ["me:hunter{}", "sk-token-{}"], ids=["password", "token"])
def test_a_login_is_not_written_down_and_another_one_goes_on(login, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with BatchServer(stays="in_progress") as server:
        first, second = (
            server.base_url.replace("//", f"//{login.format(n)}@") + f"?key=word{n}" for n in (1, 2)
        )
        with Agent("gpt-4o-mini", base_url=first) as agent:
            mapped(agent, stops_at="in_progress")
        written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert server.base_url.encode() in written
        assert login.format(1).encode() not in written and b"word1" not in written
        server.release()
        with Agent("gpt-4o-mini", base_url=second) as agent:
            assert not len(mapped(agent).failed)
        assert len(server.log()) == 40


@pytest.mark.soak
def test_a_batch_is_cancelled_and_its_answers_are_kept():
    with BatchServer(stays="in_progress") as server, opened(server) as agent:
        mapped(agent, stops_at="in_progress")
        (sent,) = Ledger(cache_file()).all()
        assert "cancelling" in MAPS.run(["cancel", sent.token[:8]], None, agent)
        done = mapped(agent)
        assert len(server.log()) == 20
    assert len(done.failed) == 20 and "batch_cancelled" in done.progress.kinds()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "takes: \\[--cache FILE\\], resume"),
        (["cancel", "zz"], "'zz' names no batch under way; %agent map lists them."),
        (["--cache", "no/file"], "There is no file no/file"),
    ],
)
def test_what_does_not_fit_is_one_sentence(arguments, words):
    with BatchServer() as server, opened(server) as agent, pytest.raises(FatalError, match=words):
        MAPS.run(arguments, None, agent)
