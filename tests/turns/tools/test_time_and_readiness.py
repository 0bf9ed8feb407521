"""Time-outs of calls, which no question uses up, and what heavy tools get ready before."""

import asyncio
import pickle
import threading

import pytest

from agent_magics import Call, FatalError, ToolContext, tool
from agent_magics.dispatch.tool import Preparation
from agent_magics.time_limit import CancellingLimit
from tests.support.turns import PATIENCE, assert_valid, scripted

STOPPED = "was stopped: it took longer than 0.05 s."


def forever(ctx: ToolContext) -> None:
    """Run until told to stop."""
    assert ctx.cancelled.wait(PATIENCE)


async def waits() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("fn", "options"), [(forever, {"parallel": True}), (waits, {}), (waits, {"parallel": True})]
)
def test_a_call_that_takes_too_long_is_ended_and_told(fn, options):
    limited = tool(name="limited", timeout=0.05, **options)(fn)
    agent = scripted(Call("limited"), "Done.", tools=[limited])
    result = agent.run_sync("Go.")
    assert (result.calls[0].success, result.calls[0].output) == (False, f"limited {STOPPED}")
    assert result.text == "Done."
    assert_valid(agent)


def test_an_async_tool_on_the_callers_loop_is_ended_there():
    ended = []

    async def limited() -> None:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(asyncio.get_running_loop())
            raise

    async def main(seconds):
        made = tool(timeout=seconds)(limited)
        result = await scripted(Call("limited"), "Done.", tools=[made]).run("Go.")
        return result.calls[0].output, asyncio.get_running_loop()

    for seconds in (0.05, 1, 20):  # a busy machine may not have begun it by then
        output, loop = asyncio.run(main(seconds))
        assert output == f"limited was stopped: it took longer than {seconds:g} s."
        if ended:
            break
    assert ended == [loop]


def test_a_call_in_time_is_left_alone():
    @tool(timeout=PATIENCE)
    def quick() -> int:
        """Be quick."""
        return 1

    assert scripted(tools=[quick]).call_sync("quick").text == "1"


def test_the_tools_own_time_out_is_its_own():
    @tool(timeout=PATIENCE, parallel=True)
    def times_out() -> None:
        """Raise."""
        raise TimeoutError("the database")

    output = scripted(tools=[times_out]).call_sync("times_out")
    assert "times_out raised TimeoutError: the database" in output.text


def test_no_time_passes_while_a_person_thinks():
    ends = []

    @tool(timeout=PATIENCE)
    async def asks(ctx: ToolContext) -> str:
        """Ask."""
        clocks.append(ctx.clock)
        await ctx.ask(permission="tool", patterns=["x"])
        await ctx.ask(permission="tool", patterns=["y"])
        return "asked"

    clocks = []

    def answer(question):
        ends.append(clocks[0]._timer)
        return "approve"

    agent = scripted(tools=[asks], approval="on-request", on_question=answer)
    assert agent.call_sync("asks").text == "asked"
    assert ends == [None, None]


def test_no_time_passes_while_another_tool_works():
    ends, clocks = [], []

    @tool(parallel=True)
    def slow() -> str:
        """Be slow."""
        ends.append(clocks[0]._timer)
        return "slow"

    @tool(timeout=PATIENCE)
    async def calls(ctx: ToolContext) -> str:
        """Call."""
        clocks.append(ctx.clock)
        return (await ctx.call("slow", {})).text

    assert scripted(tools=[slow, calls]).call_sync("calls").text == "slow"
    assert ends == [None]


def test_a_clock_goes_on_where_it_stood():
    async def main():
        async with CancellingLimit(100) as limit:
            with limit.stopped():
                with limit.stopped():
                    assert limit._timer is None
                assert limit._timer is None
                left = limit.left
            assert limit._timer.when() >= asyncio.get_running_loop().time() + left - 1
            assert not limit.is_late

    asyncio.run(main())


def test_a_question_that_is_answered_after_the_end_starts_no_clock_again():
    async def main():
        async with CancellingLimit(100) as limit:
            waiting = limit.stopped()
            waiting.__enter__()
        waiting.__exit__(None, None, None)
        assert limit._timer is None

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [0, -1, "5", True, [1]])
def test_a_time_out_is_a_number_above_zero(seconds):
    with pytest.raises(FatalError, match="seconds above 0"):
        tool(timeout=seconds)(waits)


# -- getting ready ---------------------------------------------------------------------------------


def test_a_heavy_tool_gets_ready_once_and_late():
    made = []

    def load():
        made.append(threading.current_thread())
        return {"weights": 7}

    @tool(init=load, parallel=True)
    def predict(x: int, ctx: ToolContext) -> int:
        """Predict."""
        return ctx.ready["weights"] * x

    agent = scripted([Call("predict", {"x": n}) for n in range(8)], "Done.", tools=[predict])
    assert made == []
    result = agent.run_sync("Go.")
    assert sorted(int(call.output) for call in result.calls) == [7 * n for n in range(8)]
    assert len(made) == 1
    assert made[0] is not threading.current_thread()


@pytest.mark.parametrize("error", [OSError("no such file"), StopIteration("x"), SystemExit(1)])
def test_where_getting_ready_fails_the_model_is_told_and_the_next_call_tries_again(error):
    tries = []

    def load():
        tries.append(1)
        if len(tries) == 1:
            raise error
        return "ready"

    @tool(init=load)
    def use(ctx: ToolContext) -> str:
        """Use."""
        return ctx.ready

    agent = scripted(tools=[use])
    first = agent.call_sync("use")
    assert not first.success
    assert "use was not run: getting it ready raised" in first.text
    assert agent.call_sync("use").text == "ready"


@pytest.mark.parametrize("init", [5, waits])
def test_what_gets_ready_is_a_plain_function(init):
    with pytest.raises(FatalError, match="plain function without parameters"):
        tool(init=init)(forever)


def test_what_is_ready_stays_where_it_is():
    preparation = Preparation(list)
    assert isinstance(pickle.loads(pickle.dumps(preparation)), Preparation)


def test_time_that_waits_is_not_counted():
    async def count() -> list[float]:
        used = []
        async with CancellingLimit(100) as limit:
            await asyncio.sleep(0.02)
            with limit.stopped():
                used.append(limit.used)
                await asyncio.sleep(0.05)
                used.append(limit.used)
            used.append(limit.used)
            await asyncio.sleep(0.02)
            used.append(limit.used)
        return used

    first, waited, after, last = asyncio.run(count())
    assert 0 < first == waited <= after < last
