"""What an `after_tool` hook withholds or changes is kept whole nowhere."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agent_magics import Agent, Block, RespondToModel, ScriptedModel, tool
from agent_magics.dispatch.hooks import HookedCall
from agent_magics.protocol.items import InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.records.places import rollout_folder
from tests.support.turns import scripted

CARD = "4000-1234-5678"
NAMES = [f"@r{number}" for number in range(1, 5)]


@tool(mutating=False)
def rows() -> list[dict[str, str]]:
    """Give rows."""
    return [{"card": CARD} for _ in range(500)]


@tool(mutating=False)
def text() -> str:
    """Give a text."""
    return f"{CARD}\n" * 5_000


@tool(mutating=False)
def parts() -> list[InputText]:
    """Give parts."""
    return [InputText(f"{CARD}\n" * 5_000)]


class Slow:
    card = CARD

    def __repr__(self) -> str:
        time.sleep(0.02)
        return CARD


@tool(mutating=False)
def slow() -> Any:
    """Give what takes long to be put into words."""
    return [Slow() for _ in range(50)]


COMMAND = f"for i in $(seq 5000); do echo {CARD} $i; done"
CALLS: dict[str, dict[str, Any]] = {
    "rows": {},
    "text": {},
    "parts": {},
    "slow": {},
    "exec_command": {"cmd": COMMAND},
    "shell": {"command": ["sh", "-c", COMMAND]},
    "python": {"code": f"print('{CARD}\\n' * 5000)", "where": "scratch"},
    "batch": {"calls": [{"tool": "text", "arguments": {}}, {"tool": "rows", "arguments": {}}]},
}
TOOLS = [rows, text, parts, slow, "exec_command", "shell", "python", "batch", "read_file"]


@dataclass
class Filter:
    """A hook that does the same to the output of each call but those of `read_file`."""

    answer: Callable[[ToolOutput], Any]

    def after_tool(self, call: HookedCall, output: ToolOutput) -> Any:
        handles = call.context.handles
        if call.tool in CALLS and call.tool != "batch":  # whose calls have been let pass
            for name in NAMES:  # not yet let pass
                with pytest.raises(RespondToModel):
                    handles.value_of(name)
        return None if call.tool == "read_file" else self.answer(output)


def fail(output: ToolOutput) -> Any:
    raise ValueError("cannot judge")


ANSWERS: dict[str, Callable[[ToolOutput], Any]] = {
    "block": lambda output: Block("no cards"),
    "other": lambda output: "scrubbed",
    "scrubbed": lambda output: output.text.replace(CARD, "****"),
    "replaced": lambda output: replace(output, content=output.text.replace(CARD, "****")),
    "raises": fail,
}


def read(agent: Agent) -> str:
    return "".join(agent.call_sync("read_file", {"path": name}).text for name in NAMES)


def recorded(id: str) -> str:
    """Return what the record has of results; what a command prints is shown before hooks see it."""
    [path] = rollout_folder().rglob(f"{id}.jsonl")
    return "".join(line for line in path.read_text().splitlines() if '"ResultKept"' in line)


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("name", CALLS)
def test_what_a_hook_withholds_is_kept_nowhere(name, answer, monkeypatch):
    if name == "slow":
        monkeypatch.setattr("agent_magics.dispatch.handlers.function.WORDS_LIMIT", 0.3)
    hooks = [Filter(ANSWERS[answer])]
    if name == "slow" and answer in ("scrubbed", "replaced"):
        return  # the text that the hook sees has nothing to scrub
    with scripted("Hello.", tools=TOOLS, hooks=hooks) as agent:
        agent.run_sync("Hello.")
        output = agent.call_sync(name, CALLS[name])
        assert CARD not in output.text and CARD not in repr(output.value)
        assert CARD not in repr(output.details)
        assert CARD not in read(agent)
        id = agent.session.conversation.id
    assert CARD not in recorded(id)
    with Agent.resume(id, ScriptedModel([]), ["read_file"], approval="never") as agent:
        assert CARD not in read(agent)
        assert agent.session.conversation.handles.keep("new") not in output.text


@pytest.mark.parametrize("name", CALLS)
def test_what_hooks_let_pass_can_be_read(name, monkeypatch):
    if name == "slow":
        monkeypatch.setattr("agent_magics.dispatch.handlers.function.WORDS_LIMIT", 0.3)
    hooks = [Filter(lambda output: None), Filter(lambda output: output.text)]
    with scripted("Hello.", tools=TOOLS, hooks=hooks) as agent:
        agent.run_sync("Hello.")
        assert "@r1" in agent.call_sync(name, CALLS[name]).text
        assert "@r1" in recorded(agent.session.conversation.id)
        assert name == "slow" or CARD in agent.call_sync("read_file", {"path": "@r1"}).text


def test_what_a_session_prints_later_is_withheld_with_its_output():
    answers = iter([None, Block("no cards"), None])
    hooks = [Filter(lambda output: next(answers))]
    with scripted(tools=["exec_command", "write_stdin", "read_file"], hooks=hooks) as agent:
        given = {"cmd": "seq 3000; read x; yes $x", "tty": True, "yield_time_ms": 3_000}
        assert "@r1" in agent.call_sync("exec_command", given).text
        assert "1| 1" in agent.call_sync("read_file", {"path": "@r1"}).text
        [session] = agent.session.conversation.processes.sessions()
        said = agent.call_sync("write_stdin", {"session_id": session.id, "chars": f"{CARD}\n"})
        assert "no cards" in said.text
        more = agent.call_sync("write_stdin", {"session_id": session.id})
        assert "@r1" in more.text
        assert "a hook has not let it pass" in agent.call_sync("read_file", {"path": "@r1"}).text
