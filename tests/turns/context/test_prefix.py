"""Each request begins with the whole one before, so that a provider's prompt cache holds it."""

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ScriptedModel
from agent_magics.models.base import ModelRequest
from agent_magics.models.providers.endpoints import Dialect
from agent_magics.models.wires.chat.messages import ChatTranscript
from agent_magics.models.wires.responses.items import ResponsesTranscript, encode_tools
from agent_magics.protocol.items import CustomToolCall

PATCH = "*** Begin Patch\n*** Add File: code.py\n+x = 1\n*** End Patch\n"
STEPS = [{"id": "1", "description": "look", "status": "in_progress"}]
# Each with a setting that is changed before it, and that the model is not told of.
PROMPTS = {
    "Look.": {},
    "Write code.": {"approval": "never"},
    "Keep a note.": {"max_tokens": 10**6},
    "Look again.": {"max_turns": 99},
    "Go on.": {"output_budget": 5000},
}


def script() -> Iterator[object]:
    """Yield the answers to the prompts: what changes files, notes, plans and sessions."""
    yield [Call("list_dir", {}), Call("read_file", {"path": "missing.txt"})]
    yield Call("update_plan", {"steps": STEPS})
    yield "Looked."
    yield CustomToolCall("c", "apply_patch", PATCH)
    yield "Written."
    yield Call("remember", {"topic": "data", "text": "# Data\n\nIn euros."})
    yield Call("exec_command", {"cmd": "sleep 60", "yield_time_ms": 250})
    yield "Kept."
    yield [Call("get_memory", {}), Call("read_file", {"path": "code.py"})]
    yield from [Call("list_dir", {})] * 4  # the model is told that it repeats itself
    yield "Looked again."
    yield "Gone on."


def encoded(request: ModelRequest, wire: str) -> bytes:
    """Return what stands before the end of a request, in the order in which it is cached."""
    makers = {"responses": ResponsesTranscript, "chat": partial(ChatTranscript, Dialect())}
    head = encode_tools(request.tools) + json.dumps(request.instructions).encode()
    return head + bytes(request.history.encoded(makers[wire]))


@pytest.fixture
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[ModelRequest]:
    """The requests of a conversation whose tools, notes and settings change meanwhile."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "folder"
    folder.mkdir()
    model = ScriptedModel(list(script()))
    with Agent(model, ["coding"], cwd=folder, approval="on-request") as agent:
        for prompt, changed in PROMPTS.items():
            agent.configure(**changed)
            result = agent.run_sync(prompt)
            assert result.status == "completed", result.error
    return model.requests


@pytest.mark.parametrize("wire", ["responses", "chat"])
def test_nothing_that_changes_stands_before_what_does_not(requests, wire):
    texts = [encoded(request, wire) for request in requests]
    assert len(texts) == 15
    for number, (before, after) in enumerate(pairwise(texts), 1):
        begun = before.rstrip(b"]}")
        assert after[: len(begun)] == begun, f"request {number} begins otherwise"


def test_what_continues_a_conversation_is_offered_what_that_was(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    model = ScriptedModel(
        [CustomToolCall("c", "apply_patch", PATCH), "Written.", "Forked.", "Resumed."]
    )
    with Agent(model, ["coding"], cwd=folder, approval="on-request") as agent:
        agent.run_sync("Write code.")
        with agent.fork() as child:
            child.run_sync("Go on.")
    with Agent.resume(agent.conversation_id, model, ["coding"]) as resumed:
        assert resumed.run_sync("Go on.").text == "Resumed."
    first, *others = [encode_tools(request.tools) for request in model.requests]
    assert others == [first] * 3
