"""A run that is stopped: where it stands, what stays valid, and that the next one works."""

import asyncio
import threading
from functools import partial
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ToolContext, tool
from agent_magics.engine.context.history import FAILED, INTERRUPTED
from agent_magics.engine.results.run import RunResult, summarise
from agent_magics.models.base import ItemDone
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import QuestionResolved, ToolCallRunning
from agent_magics.protocol.items import AssistantMessage
from agent_magics.protocol.ops import Interrupt, StartTurn
from tests.support.turns import (
    StuckModel,
    assert_valid,
    happened,
    in_thread,
    kinds,
    of_kind,
    outputs,
    scripted,
)

# A command that says where it runs and then runs until it is ended.
COMMAND = ["bash", "-c", "echo $$ > pid; exec sleep 1000"]


class Watched:
    """A run whose events can be read although the run itself raises."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._foreground = agent.foreground()

    async def run(self, turn_id: str = "t1") -> None:
        op = StartTurn(turn_id=turn_id, content="Go")
        await self._foreground.wait(op, self._agent.turn_config())

    @property
    def result(self) -> RunResult:
        return summarise(self._foreground.events)


async def cancel_when(agent: Agent, ready: threading.Event) -> RunResult:
    """Start a run, cancel it when `ready` is set, and return what was seen of it."""
    watched = Watched(agent)
    task = asyncio.create_task(watched.run())
    await happened(ready)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return watched.result


def check_stopped(agent: Agent, result: RunResult, after: str = "Back again.") -> None:
    """Check what holds after every stop, then that the agent goes on."""
    assert kinds(result)[-1] == "TurnAborted"
    assert result.status == "aborted"
    assert result.error == "interrupted by the person"
    assert_valid(agent)
    assert agent.run_sync("Go on").text == after


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie nobody has waited for yet has)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for_pid(folder) -> int:
    """Wait until the command has written its id."""
    patience = threading.Event()
    for _ in range(2000):
        written = (folder / "pid").read_text() if (folder / "pid").exists() else ""
        if written.endswith("\n"):
            return int(written)
        patience.wait(0.01)
    raise AssertionError("the command did not start")


def test_while_the_model_streams():
    model = StuckModel()
    agent = Agent(model, [])
    result = asyncio.run(cancel_when(agent, model.streaming))
    assert model.closed.is_set()
    check_stopped(agent, result)


def test_before_the_first_step():
    async def cancelled_at_once():
        watched = Watched(agent)
        task = asyncio.create_task(watched.run())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return watched.result

    for _ in range(20):
        agent = Agent(StuckModel(), [])
        result = asyncio.run(cancelled_at_once())
        assert kinds(result)[-1] == "TurnAborted"
        assert not agent.session.busy


def test_while_an_async_tool_runs():
    running, cleaned = threading.Event(), threading.Event()

    @tool
    async def stuck() -> str:
        """Wait for ever."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    agent = scripted(Call("stuck"), "Back again.", tools=[stuck])
    result = asyncio.run(cancel_when(agent, running))
    assert cleaned.is_set()
    assert outputs(agent) == [("call_1", INTERRUPTED)]
    check_stopped(agent, result)


def test_while_a_pool_tool_runs_which_is_told():
    running, told = threading.Event(), threading.Event()

    @tool(parallel=True)
    def stuck(ctx: ToolContext) -> str:
        """Work until told to stop."""
        running.set()
        ctx.cancelled.wait()
        told.set()
        return "half"

    agent = scripted(Call("stuck"), "Back again.", tools=[stuck])
    result = asyncio.run(cancel_when(agent, running))
    assert told.is_set()
    check_stopped(agent, result)


def test_while_a_sync_tool_holds_the_waiting_thread():
    running, told = threading.Event(), threading.Event()

    @tool
    def stuck(ctx: ToolContext) -> str:
        """Work until told to stop."""
        running.set()
        ctx.cancelled.wait()
        told.set()
        return "half"

    agent = scripted(Call("stuck"), "Back again.", tools=[stuck])
    watched = Watched(agent)
    program = in_thread(lambda: asyncio.run(watched.run("t1")))
    assert running.wait(20)
    agent.session.submit(Interrupt(turn_id="t1"))
    program.result()
    assert told.is_set()
    check_stopped(agent, watched.result)


def test_cancelling_the_task_takes_effect_when_the_sync_tool_returns():
    running, go = threading.Event(), threading.Event()

    @tool
    def slow() -> str:
        """Hold the thread."""
        running.set()
        assert go.wait(20)
        return "done"

    agent = scripted(Call("slow"), "Too late.", "Back again.", tools=[slow])
    watched = Watched(agent)
    program = {}

    async def main():
        program["task"], program["loop"] = asyncio.current_task(), asyncio.get_running_loop()
        await watched.run()

    thread = in_thread(lambda: asyncio.run(main()))
    assert running.wait(20)
    program["loop"].call_soon_threadsafe(program["task"].cancel)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        thread.result()
    assert_valid(agent)
    assert not agent.session.busy


def test_while_a_question_is_open_which_is_closed():
    asked = threading.Event()

    async def ponder(question):
        asked.set()
        await asyncio.Event().wait()

    @tool
    def act() -> str:
        """Act."""
        return "acted"

    agent = scripted(
        Call("act"), "Back again.", tools=[act], approval="untrusted", on_question=ponder
    )
    result = asyncio.run(cancel_when(agent, asked))
    [resolved] = of_kind(result, QuestionResolved)
    assert (resolved.decision, resolved.by) == ("closed", "engine")
    assert not of_kind(result, ToolCallRunning)
    check_stopped(agent, result)


def test_calls_that_ended_keep_their_outputs_and_the_rest_is_told():
    running = threading.Event()

    @tool(parallel=True, inline=True)
    def quick() -> str:
        """Be quick."""
        return "quick"

    @tool
    async def stuck() -> str:
        """Wait for ever."""
        running.set()
        await asyncio.Event().wait()

    calls = [Call("quick"), Call("stuck"), Call("quick")]
    agent = scripted(calls, "Back again.", tools=[quick, stuck])
    result = asyncio.run(cancel_when(agent, running))
    assert outputs(agent) == [
        ("call_1", "quick"),
        ("call_2", INTERRUPTED),
        ("call_3", INTERRUPTED),
    ]
    check_stopped(agent, result)


def test_a_stopped_command_is_gone_with_what_it_started(tmp_path):
    agent = scripted(
        Call("shell", {"command": COMMAND}),
        "Back again.",
        tools=["shell"],
        sandbox="danger-full-access",
    )

    async def cancelled():
        watched = Watched(agent)
        task = asyncio.create_task(watched.run())
        pid = await asyncio.to_thread(wait_for_pid, tmp_path)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pid, watched.result

    pid, result = asyncio.run(cancelled())
    assert gone(pid)
    check_stopped(agent, result)


def test_close_ends_a_running_command(tmp_path):
    agent = scripted(
        Call("shell", {"command": COMMAND}), tools=["shell"], sandbox="danger-full-access"
    )
    program = in_thread(lambda: agent.run_sync("Go"))
    pid = wait_for_pid(tmp_path)
    agent.close()
    assert gone(pid)
    result = program.result()
    assert (result.status, result.error) == ("aborted", "the agent was closed")
    assert_valid(agent)


def test_leaving_the_with_block_closes(tmp_path):
    with scripted(
        Call("shell", {"command": COMMAND}), tools=["shell"], sandbox="danger-full-access"
    ) as agent:
        program = in_thread(lambda: agent.run_sync("Go"))
        pid = wait_for_pid(tmp_path)
    assert gone(pid)
    assert program.result().status == "aborted"


def test_an_interrupt_for_a_turn_that_is_over_does_nothing():
    agent = scripted("One.", "Two.")
    turn_id = agent.run_sync("Go").events[0].turn_id
    agent.session.submit(Interrupt(turn_id=turn_id))
    assert agent.run_sync("Go").text == "Two."


def test_a_tool_that_awaits_something_cancelled_fails_alone_and_the_turn_goes_on():
    @tool
    async def fragile() -> str:
        """Await a task that somebody else has cancelled."""
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        await task

    agent = scripted(Call("fragile"), "Went on.", tools=[fragile])
    result = agent.run_sync("Go")
    assert result.text == "Went on."
    assert "CancelledError" in result.calls[0].output


def test_what_the_model_said_before_the_stop_stays():
    class SaysFirst(StuckModel):
        async def stream(self, request):
            yield ItemDone(AssistantMessage("First, I look."))
            async for event in super().stream(request):
                yield event

    model = SaysFirst()
    agent = Agent(model, [])
    asyncio.run(cancel_when(agent, model.streaming))
    assert AssistantMessage("First, I look.") in agent.session.conversation.history.items


def test_a_renderer_that_raises_stops_the_turn():
    def broken(event):
        raise ZeroDivisionError("cannot draw")

    for blocking in (False, True):
        agent = Agent(StuckModel(), [])
        op = StartTurn(turn_id="t1", content="Go")
        foreground = agent.foreground(show=broken)
        setup = agent.turn_config()
        if blocking:
            run = partial(foreground.wait_blocking, op, setup)
        else:
            run = partial(asyncio.run, foreground.wait(op, setup))
        with pytest.raises(ZeroDivisionError):
            run()
        agent.close()
        assert not agent.session.busy


def test_after_an_error_the_history_does_not_say_that_the_person_interrupted():
    @tool
    def helpless() -> str:
        """Only the person can help."""
        raise FatalError("The licence has run out.")

    agent = scripted([Call("helpless"), Call("helpless")], tools=[helpless])
    assert agent.run_sync("Go").error == "The licence has run out."
    assert outputs(agent) == [("call_1", FAILED), ("call_2", FAILED)]
