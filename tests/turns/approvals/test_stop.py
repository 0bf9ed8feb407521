"""Stop, a hook's Abort and a FatalError end the turn, whatever the tool around a call catches."""

import asyncio
import threading
from contextlib import suppress
from functools import partial

import pytest

from agent_magics import Abort, Agent, Call, FatalError, ScriptedModel, ToolContext, tool
from agent_magics.protocol.errors import AgentMagicsError, RespondToModel, TurnAbort
from agent_magics.protocol.events import QuestionResolved, ToolCallRunning
from tests.support.turns import (
    PATIENCE,
    StuckModel,
    assert_valid,
    happened,
    of_kind,
    scripted,
)

DONE: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_done():
    DONE.clear()


@tool
async def write(n: int) -> str:
    """Write."""
    DONE.append(n)
    return "written"


@tool(mutating=False)
async def look(n: int) -> str:
    """Look, which nobody is asked about."""
    DONE.append(n)
    return "seen"


@tool(mutating=False)
async def broken(n: int) -> str:
    """Fail at first, so that only the person can help."""
    if n == 0:
        raise FatalError("No licence.")
    DONE.append(n)
    return "worked"


class Guard:
    """Ends the turn at the first look."""

    def before_tool(self, call):
        return Abort("enough") if call.tool == "look" and call.arguments["n"] == 0 else None


# -- what ends the turn: the first of the steps that a tool takes ----------------------------------


async def calls_what_is_asked_about(ctx, n):
    await ctx.call("write", {"n": n})


async def asks_itself(ctx, n):
    await ctx.ask(permission="tool", patterns=[str(n)])
    DONE.append(n)


async def calls_what_a_hook_ends(ctx, n):
    await ctx.call("look", {"n": n})


async def calls_what_only_the_person_can_mend(ctx, n):
    await ctx.call("broken", {"n": n})


STEPS = [
    calls_what_is_asked_about,
    asks_itself,
    calls_what_a_hook_ends,
    calls_what_only_the_person_can_mend,
]

# -- what the tool does with the error -------------------------------------------------------------


async def goes_on(ctx, step):
    for n in range(3):
        with suppress(Exception):
            await step(ctx, n)


async def catches_ours(ctx, step):
    try:
        await step(ctx, 0)
    except AgentMagicsError:
        return


async def tells_the_model(ctx, step):
    try:
        await step(ctx, 0)
    except AgentMagicsError as error:
        raise RespondToModel("It did not work.") from error


async def tries_again_for_ever(ctx, step):
    while True:
        try:
            await step(ctx, 0)
        except Exception:
            await asyncio.sleep(0)


async def gathers(ctx, step):
    await asyncio.gather(*(step(ctx, n) for n in range(3)), return_exceptions=True)


async def gathers_and_goes_on(ctx, step):
    await gathers(ctx, step)
    await step(ctx, 3)


def as_tool(way, step):
    @tool(mutating=False)
    async def many(ctx: ToolContext) -> str:
        """Take many steps."""
        await way(ctx, step)
        return "all is well"

    return many


def in_a_thread(way, step):
    @tool(mutating=False, parallel=True)
    def many(ctx: ToolContext) -> str:
        """Take many steps, on a loop of its own."""
        asyncio.run(way(ctx, step))
        return "all is well"

    return many


WAYS = [
    goes_on,
    catches_ours,
    tells_the_model,
    tries_again_for_ever,
    gathers,
    gathers_and_goes_on,
]


MANY = Call("many")


def stopping(*tools, answer=None, turn=MANY):
    """Return the result of a turn whose first question is answered with Stop."""
    asked = []

    def first_stop(question):
        asked.append(question)
        return "abort" if len(asked) == 1 else "approve"

    agent = scripted(
        turn,
        "The model goes on.",
        tools=[write, look, broken, *tools],
        approval="untrusted",
        hooks=[Guard()],
        on_question=answer or first_stop,
    )
    result = agent.run_sync("Go.")
    assert_valid(agent)
    return result


def assert_ended(result, done=()):
    assert result.status in ("aborted", "failed")
    assert result.text == ""
    assert "question about" in result.error or result.error in (
        "the hook Guard.before_tool stopped it: enough",
        "No licence.",
    )
    assert set(done) >= set(DONE)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [as_tool, in_a_thread])
def test_the_turn_ends_whatever_a_tool_catches(place, way, step):
    # Calls about which nobody is asked may have run already, beside the one that ends the turn.
    beside = way in (gathers, gathers_and_goes_on) and step in STEPS[2:]
    assert_ended(stopping(place(way, step)), done=(1, 2) if beside else ())


@pytest.mark.parametrize("step", STEPS)
def test_so_it_does_two_calls_further_in(step):
    @tool(mutating=False)
    async def outer(ctx: ToolContext) -> str:
        """Call what calls."""
        for _ in range(2):
            with suppress(Exception):
                await ctx.call("many", {})
        return "all is well"

    result = stopping(as_tool(goes_on, step), outer, turn=Call("outer"))
    assert_ended(result)


def test_questions_that_are_open_beside_it_are_closed():
    asked = []

    async def answer(question):
        asked.append(question)
        if len(asked) < 3:
            await asyncio.Event().wait()
        return "abort"

    result = stopping(as_tool(gathers, calls_what_is_asked_about), answer=answer)
    assert_ended(result)
    decisions = [event.decision for event in of_kind(result, QuestionResolved)]
    assert decisions == ["abort", "closed", "closed"]


@pytest.mark.parametrize("step", STEPS)
def test_calls_beside_it_end_for_the_same_reason(step):
    begun = threading.Event()

    @tool(mutating=False, parallel=True)
    async def stuck() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    @tool(mutating=False, parallel=True)
    async def many(ctx: ToolContext) -> str:
        """Take a step when the other call is under way, and wait for ever."""
        await happened(begun)
        await goes_on(ctx, step)
        await asyncio.Event().wait()
        return "all is well"

    batch = Call("batch", {"calls": [{"tool": "stuck", "arguments": {}}]})
    assert_ended(stopping(many, stuck, "batch", turn=[batch, Call("many")]))


def test_no_call_that_waited_in_line_behind_it_begins():
    line = [Call("many"), Call("look", {"n": 5})]
    result = stopping(as_tool(goes_on, calls_what_is_asked_about), turn=line)
    assert_ended(result)
    assert [event.call_id for event in of_kind(result, ToolCallRunning)] == ["call_1"]


@pytest.mark.parametrize("moment", ["before_tool", "after_tool"])
def test_so_does_a_stop_at_a_call_of_a_hook(moment):
    class Asking:
        async def hook(self, call, *output):
            if call.tool == "look":
                await call.context.call("write", {"n": 1})

    hook = Asking()
    setattr(hook, moment, hook.hook)
    agent = scripted(
        [Call("look", {"n": 1}), Call("write", {"n": 2})],
        "The model goes on.",
        tools=[write, look],
        approval="untrusted",
        hooks=[hook],
        on_question=lambda question: "abort" if "." in question.call_id else "approve",
    )
    result = agent.run_sync("Go.")
    assert result.status == "aborted"
    assert [1] * (moment == "after_tool") == DONE


CLEANED = ["stopped at the question about write", "all"]


async def cleans_up(ctx, step, cleaned):
    """Let the stop pass, and clean up for a while."""
    try:
        await step(ctx)
    except TurnAbort as error:
        cleaned.append(str(error))
        raise
    finally:
        for _ in range(20):
            await asyncio.sleep(0)
        cleaned.append("all")


def test_a_tool_that_lets_it_pass_cleans_up_in_peace():
    cleaned = []
    writes = lambda ctx: ctx.call("write", {"n": 0})  # noqa: E731
    assert_ended(stopping(as_tool(partial(cleans_up, cleaned=cleaned), writes)))
    assert cleaned == CLEANED


def test_so_does_one_that_stands_inside_another_call():
    cleaned = []

    @tool(mutating=False)
    async def inner(ctx: ToolContext) -> None:
        """Call, and clean up."""
        await cleans_up(ctx, lambda ctx: ctx.call("many", {}), cleaned)

    batch = Call("batch", {"calls": [{"tool": "inner", "arguments": {}}]})
    many = as_tool(gathers, calls_what_is_asked_about)
    for turn in (batch, Call("inner")):
        assert_ended(stopping(inner, many, "batch", turn=turn))
        assert cleaned == CLEANED
        cleaned.clear()


class CallsAndSticks(StuckModel):
    """Makes one call, and never ends its next answer."""

    def __init__(self):
        super().__init__()
        self._first = ScriptedModel([Call("leaving")])

    async def stream(self, request):
        first, self._first = self._first, None
        async for event in (first or super()).stream(request):
            yield event


@pytest.mark.parametrize("step", [step for step in STEPS if step is not asks_itself])
def test_what_a_tool_leaves_behind_ends_the_turn_while_the_model_answers(step):
    model, left = CallsAndSticks(), []

    @tool(mutating=False)
    async def leaving(ctx: ToolContext) -> str:
        """Leave a step behind."""

        async def later():
            await happened(model.streaming)
            await step(ctx, 0)

        left.append(asyncio.ensure_future(later()))
        return "all is well"

    async def main():
        agent = Agent(
            model,
            [leaving, write, look, broken],
            approval="untrusted",
            hooks=[Guard()],
            on_question=lambda question: "abort",
        )
        async with asyncio.timeout(PATIENCE):
            result = await agent.run("Go.")
            await asyncio.gather(*left, return_exceptions=True)
        assert_valid(agent)
        return result

    assert_ended(asyncio.run(main()))
    assert model.closed.is_set()


def test_a_denial_ends_nothing():
    result = stopping(as_tool(goes_on, calls_what_is_asked_about), answer=lambda question: "deny")
    assert (result.status, result.text) == ("completed", "The model goes on.")
