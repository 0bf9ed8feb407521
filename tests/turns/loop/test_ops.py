"""Ops are handled in order, each has its effect, and what cannot be is one sentence."""

import itertools
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from agent_magics import Call, DynamicToolSpec, FatalError, tool
from agent_magics.protocol.events import Warned
from agent_magics.protocol.items import InputText
from agent_magics.protocol.ops import (
    Answer,
    CallTool,
    Compact,
    Configure,
    DynamicToolResponse,
    Interrupt,
    Op,
    QueuePrompt,
    RegisterTools,
    Shutdown,
    StartTurn,
    Steer,
)
from tests.support.turns import PATIENCE, scripted


def offered(agent: Any) -> list[list[str]]:
    """Return the names that each request offered."""
    requests = agent._models.given.requests
    return [[each.spec.name for each in request.tools] for request in requests]


def spec(name: str) -> DynamicToolSpec:
    return DynamicToolSpec(name, "Do it.", {"type": "object", "properties": {}})


def warned(events: Any) -> list[str]:
    return [event.message for event in events if isinstance(event, Warned)]


def test_a_run_that_starts_after_a_registration_has_the_tools() -> None:
    times = 40
    agent = scripted(*["Done."] * times, tools=[])
    for number in range(times):
        gone = (f"t{number - 1}",) if number else ()
        agent.session.submit(RegisterTools(add=(spec(f"t{number}"),), remove=gone))
        agent.run_sync("Go.")
    assert offered(agent) == [[f"t{number}"] for number in range(times)]


def test_registrations_of_several_threads_are_all_there() -> None:
    agent = scripted("Done.", tools=[])
    names = [f"t{number}" for number in range(32)]
    threads = [
        threading.Thread(target=agent.session.submit, args=(RegisterTools(add=(spec(name),)),))
        for name in names
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    agent.run_sync("Go.")
    assert sorted(offered(agent)[0]) == sorted(names)


@pytest.mark.parametrize(
    ("settings", "changed"),
    [
        ({"model": "another"}, ("model", "another")),
        ({"approval": "untrusted"}, ("approval", "untrusted")),
        ({"max_turns": 7, "output_budget": 500}, ("max_turns", 7)),
    ],
)
def test_settings_hold_from_the_next_turn_on(settings: Any, changed: Any) -> None:
    name, value = changed

    @tool(parallel=True)
    def look() -> str:
        """Change the settings in the middle of a turn."""
        agent.session.submit(Configure(settings=settings))
        return "looked"

    agent = scripted(Call("look"), "Done.", "Again.", tools=[look])
    before = getattr(agent.config, name)
    first = agent.run_sync("Go.")
    assert first.status == "completed"
    assert before != value
    assert getattr(agent.turn_config().config, name) == value


@pytest.mark.parametrize(
    "settings",
    [
        {"approval": "sometimes"},
        {"no_such_setting": 1},
        {"max_turns": "many"},
        {"max_turns": -1},
        {"cwd": "/"},
        {"instructions": 5},
        {"writable_roots": 3},
        {"model": 7},
        {"approval": "never", "sandbox": "none"},
        {"features": {"no_such": True}},
        {"loops": {"identical": "x"}},
        {"tools": ["no_such_tool"]},
        {"tools": 5},
        {1: 2},
    ],
)
def test_settings_that_cannot_be_change_nothing_and_are_told_once(settings: Any) -> None:
    @tool(parallel=True)
    def look() -> str:
        """Change the settings in the middle of a turn."""
        agent.session.submit(Configure(settings=settings))
        return "looked"

    agent = scripted(Call("look"), "Done.", tools=[look])
    before = agent.config
    (message,) = warned(agent.run_sync("Go.").events)
    assert message.startswith("The settings were not changed: ")
    assert agent.config == before


@pytest.mark.parametrize(
    "op",
    [
        None,
        "Steer",
        StartTurn(turn_id=["a"], content="Go."),  # type: ignore[arg-type]
        StartTurn(turn_id="a", content=(InputText(5),)),  # type: ignore[arg-type]
        CallTool(turn_id="a", name=None),  # type: ignore[arg-type]
        Answer(question_id=[], decision="deny"),  # type: ignore[arg-type]
        DynamicToolResponse(call_id=5, content_items=()),  # type: ignore[arg-type]
        Steer(turn_id="a", content=None),  # type: ignore[arg-type]
        QueuePrompt(turn_id="a", prompt_id="b", content=(5,)),  # type: ignore[arg-type]
        Interrupt(turn_id={}),  # type: ignore[arg-type]
        RegisterTools(add=None),  # type: ignore[arg-type]
        RegisterTools(add=(5,)),  # type: ignore[arg-type]
        Configure(settings=None),  # type: ignore[arg-type]
    ],
    ids=lambda op: type(op).__name__,
)
def test_what_is_no_operation_is_dropped_and_told(op: Any) -> None:
    @tool(parallel=True)
    def look() -> str:
        """Submit it in the middle of a turn."""
        agent.session.submit(op)
        return "looked"

    agent = scripted(Call("look"), "Done.", "Again.", tools=[look])
    result = agent.run_sync("Go.")
    assert (result.status, result.error) == ("completed", None)
    (message,) = warned(result.events)
    kind = type(op).__name__
    assert message.startswith(f"{kind} was dropped: ")
    module = "agent_magics.protocol.ops"
    declared = f"with the types that {module}.{kind} declares."
    assert message.endswith(declared if isinstance(op, Op) else f"send one of those in {module}.")
    assert agent.run_sync("Go on.").text == "Again."


@pytest.mark.parametrize(
    "op",
    [
        StartTurn(turn_id="a", content="Go."),
        CallTool(turn_id="a", name="look"),
        Compact(turn_id="a"),
    ],
    ids=lambda op: type(op).__name__,
)
def test_a_turn_that_nobody_listens_to_is_not_begun(
    op: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = scripted("Done.")
    with caplog.at_level(logging.WARNING):
        agent.session.submit(op)
        agent.session.engine.spawn(_nothing()).result(PATIENCE)
    (said,) = (each.getMessage() for each in caplog.records)
    assert said.startswith(f"agent default: {type(op).__name__} was dropped: a turn begins by")
    assert agent.run_sync("Go.").text == "Done."


@pytest.mark.parametrize(
    "op",
    [
        StartTurn(turn_id="a", content=5),  # type: ignore[arg-type]
        CallTool(turn_id="a", name="look", arguments=[1]),  # type: ignore[arg-type]
    ],
    ids=lambda op: type(op).__name__,
)
def test_a_turn_of_wrong_types_is_refused_where_it_is_begun(op: Any) -> None:
    agent = scripted("Done.")
    with pytest.raises(FatalError, match="cannot begin: of another type than its fields have"):
        agent.session.begin(op, agent.turn_config(), [].append)
    assert agent.run_sync("Go.").text == "Done."


@pytest.mark.timeout(20)
def test_an_answer_of_wrong_types_is_a_refusal_for_who_waits() -> None:
    @tool
    def act() -> str:
        """Ask."""
        return "acted"

    answer = SimpleNamespace(decision="approve", edited_text=5)
    agent = scripted(tools=[act], approval="untrusted", on_question=lambda question: answer)
    assert "the answer was of another type" in agent.call_sync("act").text


def test_words_for_another_turn_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    @tool(parallel=True)
    def look() -> str:
        """Send words to a turn that is not."""
        agent.session.submit(Steer(turn_id="other", content="Stop."))
        return "looked"

    agent = scripted(Call("look"), "Done.", tools=[look])
    result = agent.run_sync("Go.")
    (message,) = warned(result.events)
    assert message.startswith("Words for the turn 'other' were dropped: The turn under way is '")
    with caplog.at_level(logging.WARNING, "agent_magics"):
        agent.session.submit(Steer(turn_id="other", content="Stop."))
        agent.session.engine.spawn(_nothing()).result(PATIENCE)
    assert "Words for the turn 'other' were dropped: Agent 'default' is not at work" in caplog.text


async def _nothing() -> None:
    """What was submitted before has been handled when this is."""


def test_a_shutdown_ends_the_turn_under_way_and_the_session() -> None:
    @tool(parallel=True)
    def leave() -> str:
        """Shut the session down, and wait for the end of the call."""
        agent.session.submit(Shutdown())
        return "left"

    agent = scripted(Call("leave"), *itertools.repeat("Done.", 3), tools=[leave])
    result = agent.run_sync("Go.")
    assert result.status in ("aborted", "completed")
    for _ in range(2):
        again = agent.run_sync("Go on.")
        assert again.status == "failed"
        assert "was shut down; make another" in again.error


def test_a_shutdown_ends_the_processes(tmp_path: Any) -> None:
    start = Call("exec_command", {"cmd": "sleep 300", "yield_time_ms": 250})
    agent = scripted(start, "Done.", tools=["coding"], cwd=tmp_path)
    agent.run_sync("Go.")
    (process,) = agent.session.conversation.processes.sessions()
    agent.session.submit(Shutdown())
    assert process.process.wait(PATIENCE)


def test_a_shut_down_session_takes_no_turn_at_once() -> None:
    agent = scripted("Done.")
    agent.session.submit(Shutdown())
    assert "was shut down" in agent.run_sync("Go.").error
