"""What code that a turn has left behind gets when it calls tools: nobody would answer it."""

import asyncio
import gc
import weakref

import pytest

from agent_magics import Agent, FatalError, ScriptedModel, ToolContext, tool
from agent_magics.protocol.errors import RespondToModel

kept: list[ToolContext] = []
errors: list[FatalError] = []


@tool(parallel=True, mutating=False)
async def keep(ctx: ToolContext) -> str:
    """Keep the context."""
    kept.append(ctx)
    return "kept"


@tool(parallel=True, mutating=False)
async def fail(ctx: ToolContext) -> None:
    """Keep the context and the error, which holds all that the turn was made of."""
    kept.append(ctx)
    errors.append(FatalError("No."))
    raise errors[-1]


@tool(mutating=True)
def change() -> str:
    """Change something, on the thread that waits."""
    return "changed"


@pytest.mark.parametrize("policy", ["never", "untrusted"], ids=["unasked", "asked"])
def test_a_call_after_its_turn_is_refused_and_does_not_wait_for_ever(policy):
    with Agent(ScriptedModel([]), [keep, change], approval=policy) as agent:
        agent.call_sync("keep")
        with pytest.raises(RespondToModel, match="the turn that started this code has ended"):
            asyncio.run(kept.pop().call("change", {}))


def test_a_call_after_a_turn_whose_error_somebody_keeps_is_refused_too():
    with Agent(ScriptedModel([]), [fail, change], approval="never") as agent:
        with pytest.raises(FatalError):
            agent.call_sync("fail")
        with pytest.raises(RespondToModel, match="the turn that started this code has ended"):
            asyncio.run(asyncio.wait_for(kept.pop().call("change", {}), 5))
        errors.clear()


def test_what_a_turn_was_made_of_goes_with_it_and_not_with_the_next_collection():
    with Agent(ScriptedModel([]), [keep], approval="never") as agent:
        assert not gc.isenabled()  # within a test
        agent.call_sync("keep")
        emit = weakref.ref(kept.pop().turn.emit)
        agent.call_sync("keep")
        kept.clear()
        assert emit() is None
