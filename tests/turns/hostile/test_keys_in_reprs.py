"""A key is in no repr: tracebacks with the values of variables, debuggers and logs show those."""

import gc
from dataclasses import is_dataclass

import pytest

from agent_magics import Agent, tool
from agent_magics.kernel.commands.login import describe_key
from agent_magics.kernel.commands.settings import settings_table
from agent_magics.protocol.events import ModelRetry
from agent_magics.records.places import rollout_folder
from tests.support.models.responses_server import Reply, ResponsesServer, function_call
from tests.support.turns import of_kind

GIVEN, FROM_ENVIRONMENT = "sk-given-4711-never-shown-to-anybody", "sk-found-4712-never-shown-either"
LOGINS = pytest.mark.parametrize(
    "login", ["me:hunt3r+2", "sk-name-alone"], ids=["password", "name"]
)


def test_no_object_of_ours_shows_a_key(monkeypatch):
    gc.collect()  # what other tests left
    monkeypatch.setenv("OPENAI_API_KEY", FROM_ENVIRONMENT)
    with (
        ResponsesServer(["Fine."]) as server,
        Agent("gpt-4o-mini", base_url=server.base_url, api_key=GIVEN) as agent,
    ):
        assert agent.run_sync("Go.").text == "Fine."
        ours = {
            kind: each
            for each in gc.get_objects()
            if is_dataclass(kind := type(each)) and kind.__module__.startswith("agent_magics.")
        }
        assert {"TurnConfig", "Resolved", "Source"} <= {kind.__name__ for kind in ours}
        shown = {kind.__name__: repr(each) for kind, each in ours.items()}
        shown["what an agent keeps"] = repr(vars(agent))
    keys = (GIVEN, FROM_ENVIRONMENT)
    assert not [name for name, text in shown.items() if any(key in text for key in keys)]


@LOGINS
def test_no_setting_shows_what_may_hold_a_key(login):
    servers = {
        "mine": {"command": "true", "args": [GIVEN], "env": {"TOKEN": GIVEN}},
        "theirs": {"url": f"https://h/x?t={GIVEN}", "headers": {"Authorization": GIVEN}},
    }
    with Agent("m", base_url=f"http://{login}@h/v1?key={GIVEN}", mcp_servers=servers) as agent:
        shown = repr((vars(agent), agent.settings, agent.settings_now(), agent.config))
        listed = settings_table(agent.settings_now())
    for key in (GIVEN, login.rpartition(":")[2]):
        assert key not in shown and key not in listed


@LOGINS
def test_no_event_and_no_record_shows_the_login_of_an_address(login, monkeypatch):
    key = login.rpartition(":")[2]

    @tool(mutating=False)
    def tell() -> str:
        """Print where the model is."""
        return address

    busy = Reply(status=503, error="busy", headers=[("retry-after-ms", "1")])
    with ResponsesServer([busy, Reply([function_call("tell", {})]), "Fine."]) as server:
        address = server.base_url.replace("//", f"//{login}@") + f"?api-key={key}"
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        with Agent("m", [tell], approval="never") as agent:
            result = agent.run_sync("Go.")
            assert describe_key(agent.settings).endswith("the login within its address")
    assert result.text == "Fine." and of_kind(result, ModelRetry)
    assert key not in repr(result.events)
    assert key not in str(server.requests[-1].body)
    assert not [path for path in rollout_folder().rglob("*.jsonl") if key in path.read_text()]
