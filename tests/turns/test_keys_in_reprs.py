"""A key is in no repr: tracebacks with the values of variables, debuggers and logs show those."""

import gc
from dataclasses import is_dataclass

from agent_magics import Agent
from tests.support.models.responses_server import ResponsesServer

GIVEN, FROM_ENVIRONMENT = "sk-given-4711-never-shown-to-anybody", "sk-found-4712-never-shown-either"


def test_no_object_of_ours_shows_a_key(monkeypatch):
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
