"""Blocking forms, calls from inside tools, and what tools of every shape give back."""

import asyncio
import dataclasses
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agent_magics import Call, FatalError, RespondToModel, ToolContext, tool
from agent_magics.engine.foreground.inbox import HEARTBEAT
from agent_magics.protocol.events import ToolCallPending, ToolCallUpdated, TurnAborted, Warned
from agent_magics.protocol.items import InputText
from agent_magics.protocol.ops import StartTurn
from agent_magics.protocol.tools import ToolOutput
from tests.support.turns import PATIENCE, in_thread, of_kind, outputs, scripted

END = threading.Event()
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+made\n*** End Patch"


@tool
def where() -> str:
    """Tell on which thread it runs."""
    return threading.current_thread().name


@tool
async def awaited() -> str:
    """Await something."""
    await asyncio.sleep(0)
    return "awaited"


@tool(timeout=0.05)
async def swallows() -> str:
    """Catch every cancellation."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@tool(timeout=0.05)
async def threaded() -> str:
    """Wait for a thread that ends when the test does."""
    await asyncio.to_thread(END.wait)
    return "late"


def run_in_thread(agent):
    return in_thread(lambda: agent.run_sync("Go")).result()


def run_in_loop(agent):
    async def main():
        return agent.run_sync("Go")

    return asyncio.run(main())


def run_awaiting(agent):
    return asyncio.run(agent.run("Go"))


def run_plainly(agent):
    return agent.run_sync("Go")


WAYS = [run_plainly, run_in_thread, run_in_loop, run_awaiting]
EVERY_WAY = pytest.mark.parametrize("run", WAYS)


@EVERY_WAY
def test_sync_and_async_tools_run_in_every_way(run):
    agent = scripted([Call("where"), Call("awaited")], "Ok.", tools=[where, awaited])
    result = run(agent)
    assert result.text == "Ok."
    assert [call.success for call in result.calls] == [True, True]
    on_main = run is not run_in_thread
    assert (outputs(agent)[0][1] == threading.main_thread().name) is on_main
    assert outputs(agent)[1][1] == "awaited"


def test_an_async_tool_runs_on_the_loop_of_whoever_waits():
    lock_loop = []

    @tool
    async def locked() -> str:
        """Take a lock that belongs to the program's loop."""
        async with lock:
            lock_loop.append(asyncio.get_running_loop())
        return "ok"

    async def main():
        nonlocal lock
        lock = asyncio.Lock()
        async with asyncio.timeout(PATIENCE):
            await lock.acquire()
            run = asyncio.create_task(agent.run("Go"))
            asyncio.get_running_loop().call_soon(lock.release)
            await run
        assert lock_loop == [asyncio.get_running_loop()]

    lock = None
    agent = scripted(Call("locked"), "Ok.", tools=[locked])
    asyncio.run(main())


# -- calls from inside tools ---------------------------------------------------------------------


@EVERY_WAY
def test_a_sync_tool_calls_another_tool_without_deadlock(run):
    @tool
    def outer() -> str:
        """Call sync, async and pool tools."""
        names = ("where", "awaited", "pooled")
        return " ".join(agent.call_sync(name).text.split("_")[0] for name in names)

    @tool(parallel=True)
    def pooled() -> str:
        """Run on the pool."""
        return threading.current_thread().name

    agent = scripted(Call("outer"), "Ok.", tools=[outer, where, awaited, pooled])
    result = run(agent)
    assert result.calls[0].success, result.calls
    assert result.calls[0].output.endswith("awaited agent-tool")


@EVERY_WAY
def test_a_pool_tool_calls_another_tool_without_deadlock(run):
    @tool(parallel=True)
    def outer() -> str:
        """Call another tool from the pool; its own thread waits and so is the main one."""
        return agent.call_sync("where").text

    agent = scripted(Call("outer"), "Ok.", tools=[outer, where])
    result = run(agent)
    assert result.calls[0].output.startswith("agent-tool")


@EVERY_WAY
def test_an_async_tool_calls_tools_of_every_kind_through_its_context(run):
    @tool
    async def outer(ctx: ToolContext) -> str:
        """Call sync, async, pool and built-in tools as part of this call."""
        (Path.cwd() / "a.txt").write_text("words", encoding="utf-8")
        calls = (("where", {}), ("awaited", {}), ("pooled", {}), ("read_file", {"path": "a.txt"}))
        return " / ".join([(await ctx.call(name, args)).text for name, args in calls])

    @tool(parallel=True)
    def pooled() -> str:
        """Run on the pool."""
        return "pooled"

    agent = scripted(Call("outer"), "Ok.", tools=[outer, where, awaited, pooled, "read_file"])
    result = run(agent)
    assert result.status == "completed"
    own = next(call for call in result.calls if call.name == "outer")
    assert own.success, own.output
    assert "awaited / pooled / " in own.output
    assert "words" in own.output
    nested = [event for event in of_kind(result, ToolCallPending) if event.parent_call_id]
    assert [event.name for event in nested] == ["where", "awaited", "pooled", "read_file"]
    assert {event.parent_call_id for event in nested} == {"call_1"}
    assert [event.call_id for event in nested] == [f"call_1.{n}" for n in (1, 2, 3, 4)]


def test_a_nested_call_is_asked_about_like_any_other():
    asked = []

    @tool(mutating=False)
    async def outer(ctx: ToolContext) -> str:
        """Call a tool that changes something."""
        return (await ctx.call("where", {})).text

    def on_question(question):
        asked.append(question.call_id)
        return "deny"

    agent = scripted(
        Call("outer"), "Ok.", tools=[outer, where], approval="untrusted", on_question=on_question
    )
    result = agent.run_sync("Go")
    assert asked == ["call_1.1"]
    assert "denied" in result.calls[-1].output


def test_giving_up_a_nested_call_stops_that_call_alone():
    began, told = threading.Event(), threading.Event()

    @tool(parallel=True)
    def stuck(ctx: ToolContext) -> str:
        """Work until told to stop."""
        began.set()
        ctx.cancelled.wait()
        told.set()
        return ""

    @tool
    async def outer(ctx: ToolContext) -> str:
        """Start a call and give it up."""
        nested = asyncio.ensure_future(ctx.call("stuck", {}))
        await asyncio.to_thread(began.wait, PATIENCE)
        nested.cancel()
        await asyncio.to_thread(told.wait, PATIENCE)
        return f"given up, {ctx.cancelled.is_set()}"

    agent = scripted(Call("outer"), "Ok.", tools=[outer, stuck])
    result = agent.run_sync("Go")
    assert outputs(agent) == [("call_1", "given up, False")]
    assert result.status == "completed"


# -- generators ----------------------------------------------------------------------------------


@EVERY_WAY
def test_what_a_generator_yields_is_progress_and_the_last_or_returned_value_the_result(run):
    @tool
    def steps():
        """Go step by step."""
        yield 0.5
        yield "nearly"
        yield {"rows": 3}
        return "done"

    @tool
    async def later():
        """Go step by step, awaiting."""
        yield 0.25
        await asyncio.sleep(0)
        yield "the end"

    agent = scripted([Call("steps"), Call("later")], "Ok.", tools=[steps, later])
    result = run(agent)
    assert [text for _, text in outputs(agent)] == ["done", "the end"]
    news = [
        (e.name, e.progress, e.title, dict(e.metadata)) for e in of_kind(result, ToolCallUpdated)
    ]
    assert news == [
        ("steps", 0.5, None, {}),
        ("steps", None, "nearly", {}),
        ("steps", None, None, {"rows": 3}),
        ("later", 0.25, None, {}),
        ("later", None, "the end", {}),
    ]


# -- what goes wrong inside tools ----------------------------------------------------------------


def raising(error: BaseException, **options):
    @tool(name="bad", **options)
    def bad() -> str:
        """Go wrong."""
        raise error

    return bad


def raising_async(error: BaseException):
    @tool(name="bad")
    async def bad() -> str:
        """Go wrong."""
        raise error

    return bad


class Outcome(BaseException):
    """Not an `Exception`: what pytest.fail and some async libraries raise."""


ERRORS = [
    Outcome("of a library"),
    ZeroDivisionError("by zero"),
    SystemExit(3),
    StopIteration("early"),
    GeneratorExit(),
    asyncio.CancelledError(),
    ExceptionGroup("two", [ValueError("a"), ValueError("b")]),
]


@EVERY_WAY
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("kind", ["sync", "pool", "inline", "async"])
def test_whatever_a_tool_raises_is_told_and_the_engine_lives(run, error, kind):
    if kind == "async":
        if isinstance(error, StopIteration):
            error = RuntimeError("a coroutine cannot raise StopIteration")
        bad = raising_async(error)
    else:
        bad = raising(error, parallel=kind != "sync", inline=kind == "inline")
    agent = scripted([Call("bad"), Call("where")], "Went on.", tools=[bad, where])
    result = run(agent)
    assert result.text == "Went on.", result.error
    assert [call.success for call in result.calls] == [False, True]
    told = outputs(agent)[0][1]
    said = f": {error}" if str(error) else ""
    assert told.startswith(f"bad raised {type(error).__name__}{said} (line ")
    assert "raise error" in told


def test_respond_to_model_is_told_as_it_is():
    agent = scripted(Call("bad"), "Ok.", tools=[raising(RespondToModel("Give me a number."))])
    assert agent.run_sync("Go").calls[0].output == "Give me a number."


def test_a_fatal_error_ends_the_turn_and_not_the_agent():
    agent = scripted(Call("bad"), "Ok.", tools=[raising(FatalError("No licence."))])
    result = agent.run_sync("Go")
    assert (result.status, result.error) == ("failed", "No licence.")
    assert agent.run_sync("Go").text == "Ok."


@pytest.mark.parametrize("run", [run_plainly, run_in_loop])
def test_ctrl_c_in_a_tool_stops_the_run_and_reaches_the_program(run):
    agent = scripted(Call("bad"), "Back again.", tools=[raising(KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        run(agent)
    assert not agent.session.busy
    assert agent.run_sync("Go").text == "Back again."


# -- one call ------------------------------------------------------------------------------------


def test_call_sync_gives_text_content_success_and_details(tmp_path):
    (tmp_path / "a.txt").write_text("words\n", encoding="utf-8")
    output = scripted(tools=["read_file"]).call_sync("read_file", {"path": "a.txt"})
    assert isinstance(output, ToolOutput)
    assert output.success
    assert output.content == output.text
    assert "words" in output.text


def test_call_gives_content_parts_and_details_as_they_are():
    @tool
    def rich() -> ToolOutput:
        """Give parts."""
        return ToolOutput((InputText("a"), InputText("b")), details={"rows": 2})

    output = asyncio.run(scripted(tools=[rich]).call("rich"))
    assert output.content == (InputText("a"), InputText("b"))
    assert output.text == "a\nb"
    assert output.details == {"rows": 2}


def test_an_output_that_cannot_be_read_is_told_and_the_turn_goes_on():
    @tool
    def empty() -> ToolOutput:
        """Give no content."""
        return ToolOutput(None)

    agent = scripted(Call("empty"), "Went on.", tools=[empty])
    result = agent.run_sync("Go")
    assert result.text == "Went on."
    assert not result.calls[0].success
    assert result.calls[0].output.startswith("empty ran, but what it returned")


@pytest.mark.parametrize("api_key", [None, "sk-test-0123456789"])
def test_details_that_hold_themselves_are_left_out(api_key):
    @tool
    def cyclic() -> ToolOutput:
        """Give details without an end."""
        details = {}
        details["self"] = details
        return ToolOutput("fine", details=details)

    agent = scripted(Call("cyclic"), "Went on.", tools=[cyclic], api_key=api_key)
    result = agent.run_sync("Go")
    assert result.text == "Went on."
    assert result.calls[0].output == "fine"
    assert of_kind(result, Warned) == []


def test_details_may_hold_anything_and_do_not_end_the_turn():
    @dataclasses.dataclass
    class Row:
        path: Path

    @tool
    def odd() -> ToolOutput:
        """Give odd details."""
        return ToolOutput("fine", details={"path": Path("a"), "kind": Row, "row": Row(Path("b"))})

    agent = scripted(tools=[odd])
    assert agent.call_sync("odd").text == "fine"


def test_a_failed_call_says_so():
    output = scripted(tools=["read_file"]).call_sync("read_file", {"path": "nothing"})
    assert not output.success
    assert "nothing" in output.text


def test_a_str_is_freeform_input(tmp_path):
    output = scripted(tools=["apply_patch"]).call_sync("apply_patch", PATCH)
    assert output.success, output.text
    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == "made\n"


def test_a_str_for_a_function_tool_says_how_to_call_it():
    output = scripted(tools=[where]).call_sync("where", "text")
    assert not output.success
    assert "JSON object" in output.text


def test_an_unknown_tool_is_told():
    output = scripted(tools=[where]).call_sync("were")
    assert "Did you mean where?" in output.text


def test_a_call_leaves_no_trace_in_the_conversation():
    agent = scripted("Ok.", tools=[where])
    agent.call_sync("where")
    assert list(agent.session.conversation.history.items) == []


def test_a_fatal_error_in_a_call_is_raised():
    with pytest.raises(FatalError, match="No licence"):
        scripted(tools=[raising(FatalError("No licence."))]).call_sync("bad")


def test_a_call_that_ends_leaves_a_prompt_its_place(monkeypatch):
    """Law: of two prompts one is refused, whenever a call beside them ends."""
    with scripted(tools=[where]) as agent:
        turns, store = agent.session.turns, agent.session.conversation.store
        monkeypatch.setattr(store, "end_cell", lambda: turns.reserve("another"))
        agent.call_sync("where")
        assert turns.prompt == "another"
        with pytest.raises(FatalError, match="at work"):
            turns.reserve("a third")
        turns.prompt = ""


def test_calls_may_be_made_side_by_side():
    barrier = threading.Barrier(4)

    @tool(parallel=True)
    def meet() -> str:
        """Wait for the others."""
        barrier.wait(PATIENCE)
        return "met"

    async def main():
        return await asyncio.gather(*(agent.call("meet") for _ in range(4)))

    agent = scripted(tools=[meet])
    assert [output.text for output in asyncio.run(main())] == ["met"] * 4


def test_the_engine_s_thread_is_a_daemon_and_there_is_one():
    scripted("Ok.").run_sync("Go")
    scripted("Ok.").run_sync("Go")
    engines = [t for t in threading.enumerate() if t.name == "agent-engine"]
    assert len(engines) == 1
    assert engines[0].daemon
    assert sys.is_finalizing() is False


def test_an_interrupt_that_is_handled_slowly_is_not_lost():
    """On a busy machine a handler takes longer than the waiting thread's heartbeat."""
    began = threading.Event()

    @tool
    async def waits() -> str:
        """Wait for what never comes."""
        began.set()
        await asyncio.Event().wait()
        return "never"

    agent = scripted(Call("waits"), "Done.", tools=[waits])
    foreground = agent.foreground()

    def handle(number, frame):
        time.sleep(4 * HEARTBEAT)
        foreground.interrupt()

    def press():
        began.wait(PATIENCE)
        threading.Event().wait(10 * HEARTBEAT)  # no event comes any more, which would wake it
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGINT, handle)
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            foreground.wait_blocking(StartTurn(turn_id="t", content="Go."), agent.turn_config())
    finally:
        signal.signal(signal.SIGINT, previous)
        pressing.join()
    assert isinstance(foreground.events[-1], TurnAborted)


@tool(timeout=0.5)
def endless():
    """Go on for ever."""
    number = 1
    while True:
        yield number
        number *= 2  # soon too large for a float


@tool(timeout=0.5)
async def endless_async():
    """Go on for ever, awaiting nothing."""
    while True:
        yield "on and on" * 1_000


@pytest.mark.soak
@EVERY_WAY
@pytest.mark.parametrize("generator", [endless, endless_async], ids=lambda made: made.__name__)
def test_a_generator_without_end_is_stopped_and_shown_now_and_then(generator, run):
    agent = scripted(Call(generator.__name__), "Ok.", tools=[generator])
    result = run(agent)
    [(_, output)] = outputs(agent)
    assert "longer than 0.5 s" in output
    news = of_kind(result, ToolCallUpdated)
    assert 10 <= len(news) < 1_000  # of some hundred thousand; a busy machine draws fewer
    assert all(len(event.title or "") <= 500 for event in news)
    assert result.text == "Ok."


@pytest.mark.timeout(30)
@pytest.mark.parametrize("stubborn", [swallows, threaded], ids=lambda each: each.spec.name)
def test_what_ignores_its_cancellation_holds_no_run(stubborn):
    END.clear()
    try:
        result = run_plainly(scripted(Call(stubborn.spec.name), "Done.", tools=[stubborn]))
    finally:
        END.set()
    assert result.text == "Done."
    warned = [each.message for each in of_kind(result, Warned)]
    ours = [each for each in warned if "goes on though it was cancelled" in each]
    assert len(ours) == len(warned) == (stubborn is swallows)
