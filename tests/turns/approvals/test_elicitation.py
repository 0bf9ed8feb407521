"""A program answers a real server's questions, and only what fits reaches the server."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agent_magics import Call
from agent_magics.dispatch.consent.decision import MOST_DENIED, MOST_OPEN
from agent_magics.dispatch.consent.flood import MOST_ASKED
from agent_magics.engine.session import Session
from agent_magics.protocol.events import ElicitationRequested, QuestionResolved, Warned
from agent_magics.protocol.ops import Answer
from tests.support.mcp import PROGRAMS
from tests.support.mcp.world import World

SERVER = str(PROGRAMS / "asking_server.py")
BOOK, BUSY = Call("mcp__asking__book", {}), Call("mcp__asking__busy", {})
FILLED_IN = {"name": "Ann", "guests": 3, "meal": "f"}
DEFAULTS = {"day": "2026-12-24", "window": True, "extras": ["cake"]}


def accepted(**content: Any) -> str:
    """What the server says of an answer, in the order of its form."""
    order = ("name", "day", "guests", "window", "meal", "extras")
    return f"accept {json.dumps({name: content[name] for name in order if name in content})}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    servers = {"asking": {"command": sys.executable, "args": [SERVER], "startup_timeout_sec": 60}}
    with World(tmp_path_factory.mktemp("asking"), servers) as world:
        yield world


def played(world: World, call: Call, answer: Any) -> tuple[str, QuestionResolved]:
    """Return what the server was answered, and how that came."""
    events = world.play(call, "Done.", on_question=answer).events
    [question] = [event for event in events if isinstance(event, ElicitationRequested)]
    [resolved] = [event for event in events if isinstance(event, QuestionResolved)]
    assert question.server == "asking"
    [output] = [event.output for event in events if type(event).__name__ == "ToolCallCompleted"]
    return output, resolved


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        # What is left out of a form has its default (SEP-1034), what is None has none.
        (FILLED_IN, accepted(**DEFAULTS, **FILLED_IN)),
        ({**FILLED_IN, "day": None, "extras": None}, accepted(**FILLED_IN, window=True)),
        ({**FILLED_IN, "window": False}, accepted(**{**DEFAULTS, **FILLED_IN, "window": False})),
        ("deny", "decline null"),
        ("abort", "cancel null"),
        ({**FILLED_IN, "guests": 99}, "decline null"),
        ({**FILLED_IN, "other": 1}, "decline null"),
        ("approve", "decline null"),
        ("perhaps", "decline null"),
        (None, "decline null"),
    ],
)
def test_a_program_fills_in_a_form(world: World, answer: Any, said: str) -> None:
    assert played(world, BOOK, lambda question: answer)[0] == said


async def _async_answer(question: ElicitationRequested) -> dict[str, Any]:
    return {"sure": question.message == "Sure?"}


def test_an_async_answer_counts_as_well(world: World) -> None:
    said, resolved = played(world, BUSY, _async_answer)
    assert said == 'accept {"sure": true}'
    assert (resolved.decision, resolved.by) == ("approve", "program")


def test_why_a_form_was_declined_is_told(world: World) -> None:
    _, resolved = played(world, BOOK, lambda question: {"name": "Ann"})
    assert (resolved.decision, resolved.by) == ("deny", "policy")
    assert "guests: this is required; meal: this is required" in resolved.feedback


def test_without_anybody_to_ask_it_is_declined(world: World) -> None:
    said, resolved = played(world, BOOK, None)
    assert said == "decline null"
    assert "nobody can be asked here" in resolved.feedback


def test_an_answer_from_elsewhere_is_checked_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = Session.submit

    def instead(session: Session, op: Any) -> None:
        if isinstance(op, Answer):
            op = Answer(
                question_id=op.question_id, decision="approve", edited_arguments='{"sure": "x"}'
            )
        submit(session, op)

    monkeypatch.setattr(Session, "submit", instead)
    assert played(world, BUSY, lambda question: "approve")[0] == "decline null"


@pytest.mark.soak
@pytest.mark.parametrize(
    ("answer", "put", "why"),
    [
        ("deny", MOST_DENIED, f"{MOST_DENIED} of its questions in a row were denied"),
        ("abort", MOST_DENIED, f"{MOST_DENIED} of its questions in a row were denied"),
        ({"sure": True}, MOST_ASKED, f"it has asked {MOST_ASKED} questions"),
    ],
)
@pytest.mark.parametrize("together", [False, True])
def test_a_server_does_not_flood_a_person_with_questions(
    world: World, answer: Any, put: int, why: str, together: bool
) -> None:
    asked = []

    def decide(question: ElicitationRequested) -> Any:
        asked.append(question)
        return answer

    flood = Call("mcp__asking__flood", {"questions": 300, "together": together})
    events = world.play(flood, flood, "Done.", on_question=decide).events
    warned = [event.message for event in events if isinstance(event, Warned)]
    if together:
        # Those that wait are bounded as well, so fewer may be put.
        assert len(asked) <= put + MOST_OPEN
        assert len([each for each in warned if "not heard any more in this turn" in each]) == 1
    else:
        assert len(asked) == put
        assert warned == [f"The MCP server asking is not heard any more in this turn: {why}."]
    # Another turn begins afresh.
    assert played(world, BUSY, lambda question: {"sure": True})[0].startswith("accept")
