"""The states of a call: only those of the table follow each other."""

import itertools
from pathlib import Path

import pytest

from agent_magics.dispatch.call import NEXT, CallInProgress, CallState
from agent_magics.dispatch.context import TurnContext
from agent_magics.protocol.config import RunConfig
from agent_magics.protocol.tools import FunctionPayload, ToolCall


def new_call() -> CallInProgress:
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="a",
        config=RunConfig(cwd=Path.cwd()),
        env={},
        emit=lambda kind, **fields: None,
        ask=None,
        call=None,
        validate_path=None,
        messages=tuple,
        main_thread=None,
    )
    return CallInProgress(ToolCall("look", "c", FunctionPayload("{}"), "parent"), turn)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(CallState, repeat=2)))
def test_a_call_goes_on_only_as_the_table_says(before, after):
    call = new_call()
    call.state = before
    if after in NEXT[before]:
        call.move(after)
        assert call.state is after
    else:
        with pytest.raises(RuntimeError, match=f"{before.value} cannot be {after.value}"):
            call.move(after)


def test_a_call_can_end_from_everywhere_and_nothing_follows():
    assert all(CallState.ENDED in NEXT[state] for state in CallState if NEXT[state])
    assert [state for state in CallState if not NEXT[state]] == [CallState.ENDED]


PUBLIC = [name for name in dir(new_call().context) if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_tool_can_change_nothing_of_its_context(name):
    context = new_call().context
    with pytest.raises(AttributeError):
        setattr(context, name, None)


def test_the_context_names_the_call():
    context = new_call().context
    assert (context.call_id, context.name, context.parent_call_id) == ("c", "look", "parent")
