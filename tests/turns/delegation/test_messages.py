"""Sub-agents that are spoken to: at work, stopped, and after they have ended."""

import asyncio
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from agent_magics import Agent, Call, ToolContext, tool
from agent_magics.approval.grants import Grant
from agent_magics.delegation.turn_agents import TurnAgents
from agent_magics.dispatch.turn import AgentBudget
from agent_magics.kernel.commands.approvals import APPROVALS
from agent_magics.kernel.commands.conversations.sub_agents import SUB_AGENTS
from agent_magics.kernel.overview import _helpers
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.items import UserMessage
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, outputs, sticking
from tests.turns.delegation.test_spawning import agent_with, reports, spawn, wait

TO_IT = "Message to default/explore-1:\n"


def send(message, **more):
    return Call("send_input", {"id": "explore-1", "message": message, **more})


def prompts(request):
    items = request.history.items
    return [each.content for each in items if isinstance(each, UserMessage)]


def test_one_that_has_ended_goes_on_with_a_message():
    model = TreeModel(
        main=[spawn(), wait(), send("And in b.py?"), wait(), "Done."],
        explore_1=["In a.py: one.", "In b.py: two."],
    )
    with agent_with(model) as agent:
        agent.run_sync("Go.")
    second = model.requests("explore_1")[1]
    assert prompts(second)[-1] == f"{TO_IT}And in b.py?"
    assert len(second.history.items) == 3  # with the task and its first answer
    assert "> In b.py: two." in reports(agent)[-1]


def test_one_at_work_reads_a_message_after_its_call():
    sent = threading.Event()

    @tool(mutating=False, parallel=True)
    def hold() -> str:
        """Return when a message was sent."""
        assert sent.wait(PATIENCE)
        return "held"

    @tool(mutating=False, parallel=True)
    def release() -> str:
        """Let it go on."""
        sent.set()
        return "released"

    model = TreeModel(
        main=[spawn(), send("Be brief."), Call("release"), wait(), "Done."],
        explore_1=[Call("hold"), "Brief."],
    )
    with agent_with(model, hold, release) as agent:
        agent.run_sync("Go.")
    assert "> Brief." in reports(agent)[0]
    assert any("Be brief." in prompts(each) for each in model.requests("explore_1"))


def test_a_message_that_interrupts_stops_what_it_does():
    begun, stick = sticking()

    @tool(mutating=False, parallel=True)
    def see() -> str:
        """Return when the other has begun."""
        assert begun.wait(PATIENCE)
        return "seen"

    model = TreeModel(
        main=[spawn(), Call("see"), send("Stop that.", interrupt=True), wait(), wait(), "Done."],
        explore_1=[Call("stick"), "Stopped it."],
    )
    with agent_with(model, stick, see) as agent:
        agent.run_sync("Go.")
    assert "> Stopped it." in "\n".join(reports(agent))


def test_one_that_failed_is_resumed_with_its_conversation():
    def fail(request):
        raise ZeroDivisionError("once")

    model = TreeModel(
        main=[spawn(), wait(), Call("resume_agent", {"id": "explore-1"}), wait(), "Done."],
        explore_1=[fail, "Now it worked."],
    )
    with agent_with(model) as agent:
        agent.run_sync("Go.")
    assert "> Now it worked." in reports(agent)[-1]
    assert prompts(model.requests("explore_1")[1])[-1] == f"{TO_IT}Go on with your task."


LOOK = Call("list_dir", {"path": "."})


@pytest.mark.parametrize("answers", [["One."], [LOOK, "One."], [LOOK, LOOK, "One."]])
@pytest.mark.parametrize("most", [2, 3, 4, 5])
def test_a_budget_holds_for_all_of_its_work(answers, most):
    asked = [each for _ in range(most) for each in (send("More."), wait())]
    model = TreeModel(
        main=[spawn(budget={"requests": most}), wait(), *asked, "."], explore_1=answers * most
    )
    with agent_with(model) as agent:
        agent.run_sync("Go.")
    assert most - 1 <= len(model.requests("explore_1")) <= most
    assert "its budget is used up" in outputs(agent)[-2][1]


def test_an_unknown_one_is_told_with_those_there_are():
    with agent_with(TreeModel(main=[send("Hello?"), "I see."])) as agent:
        agent.run_sync("Go.")
    assert outputs(agent)[0][1] == "There is no sub-agent 'explore-1'; there are none."


def test_a_tree_is_replayed_whatever_order_its_agents_end_in(tmp_path):
    recording = tmp_path / "tree.agent.jsonl"
    turn = threading.Event()
    slow = {"explore-1": turn}

    @tool(mutating=False, parallel=True)
    def step(ctx: ToolContext) -> str:
        """Work; one of the agents waits for the other."""
        waits = slow.get(ctx.agent.rpartition("/")[2])
        if waits is not None:
            assert waits.wait(PATIENCE)
        else:
            turn.set()
        return "ok"

    model = TreeModel(
        main=[[spawn("Same."), spawn("Same.")], wait(), wait(), "Both."],
        explore_1=[Call("step"), "One."],
        explore_2=[Call("step"), "Two."],
    )
    with agent_with(model, step, record=recording) as agent:
        first = agent.run_sync("Go.")
    slow["explore-2"] = turn = threading.Event()
    del slow["explore-1"]
    with Agent(
        None, ["coding", step], approval="never", replay=recording, replay_strict=True
    ) as again:
        second = again.run_sync("Go.")
    assert (first.text, second.error, second.text) == ("Both.", None, "Both.")
    texts = {name: child.text for name, child in again.sub_agents.agents.items()}
    assert texts == {"explore-1": "One.", "explore-2": "Two."}


class LaterFirst(TreeModel):
    """Answers the second request of explore-1 after that of explore-2."""

    def __init__(self, **scripts):
        super().__init__(**scripts)
        self._answered = asyncio.Event()

    async def stream(self, request):
        is_second = len(request.history.items) > 1
        if is_second and "/explore-1." in request.instructions:
            await self._answered.wait()
        async for event in super().stream(request):
            yield event
        if is_second and "/explore-2." in request.instructions:
            self._answered.set()


@pytest.mark.parametrize(
    "go_on",
    [
        lambda name: Call("send_input", {"id": name, "message": "Sum it up."}),
        lambda name: Call("resume_agent", {"id": name}),
    ],
)
def test_those_that_go_on_are_replayed_whatever_order_they_end_in(go_on, tmp_path):
    recording = tmp_path / "tree.agent.jsonl"
    begun, gate = threading.Event(), threading.Event()

    @tool(mutating=False, parallel=True)
    def begin() -> str:
        """Say that it works."""
        begun.set()
        return "ok"

    @tool(mutating=False, parallel=True)
    def see() -> str:
        """Return when one works, where that comes first."""
        assert not gate.is_set() or begun.wait(PATIENCE)
        return "ok"

    each = wait("explore-1"), wait("explore-2")
    again = go_on("explore-1"), Call("see"), go_on("explore-2")
    model = LaterFirst(
        main=[[spawn("A."), spawn("B.")], *each, *again, *each, "Both."],
        explore_1=["1.", Call("begin"), "Sum of 1."],
        explore_2=["2.", Call("begin"), "Sum of 2."],
    )
    replayed = {"replay": recording, "replay_strict": True}
    for played, options in ((model, {"record": recording}), (None, replayed)):
        tools = ["coding", begin, see]
        with Agent(played, tools, approval="never", **options) as agent:
            assert agent.run_sync("Go.").text == "Both."
            texts = {name: child.text for name, child in agent.sub_agents.agents.items()}
        assert texts == {"explore-1": "Sum of 1.", "explore-2": "Sum of 2."}
        begun.clear()
        gate.set()


@contextmanager
def at_work(*more, **options):
    """Start a sub-agent that sticks in its first call; yield its agent, the model and itself."""
    begun, stick = sticking()
    model = TreeModel(main=[spawn(), "On its way.", "I see."], explore_1=[Call("stick"), *more])
    with agent_with(model, stick, **options) as agent:
        agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        yield agent, model, agent.sub_agents.agents["explore-1"]


def on_loop(agent, work):
    return agent.session.engine.spawn(work).result(PATIENCE)


def notebook_of(own, *others):
    """Return what stands for a notebook with these agents."""
    agents = {each.name: each for each in (own, *others)}
    host = SimpleNamespace(queued=[])
    return SimpleNamespace(agent_named=lambda: own, agents=agents, host=host)


def test_those_of_every_agent_are_listed_and_stopped():
    with at_work() as (agent, _, child), at_work(name="trial") as (trial, _, other):
        notebook = notebook_of(agent, trial)
        listed = SUB_AGENTS.act(notebook, [])
        assert "`explore-1`" in listed and "`trial/explore-1`" in listed
        with pytest.raises(FatalError, match="default/explore-1 or trial/explore-1"):
            SUB_AGENTS.act(notebook, ["stop", "explore-1"])
        SUB_AGENTS.act(notebook, ["stop", "trial/explore-1"])
        on_loop(trial, ended(other))
        assert (child.status, other.status) == ("running", "stopped")
        SUB_AGENTS.act(notebook, ["stop", "explore-1"])
        on_loop(agent, ended(child))
        assert child.problem == "stopped by the person"


def test_what_is_allowed_to_a_sub_agent_is_listed_and_taken_back():
    with at_work() as (agent, _, child):
        child.session.conversation.store._keep(Grant("f", "make", "session"))
        listed = APPROVALS.act(notebook_of(agent), [])
        assert "in this session, agent `default/explore-1`" in listed
        assert "Nothing is allowed" in APPROVALS.act(notebook_of(agent), ["revoke", "all"])


async def ended(child):
    await child.ended


def test_one_at_work_is_listed_from_any_thread():
    with at_work() as (agent, _, _child):
        lines = [
            SUB_AGENTS.act(notebook_of(agent), []),
            *map(str, _helpers(agent)),
        ]
    assert all("explore-1" in line and "running: stick" in line for line in lines), lines


@pytest.mark.parametrize("stops", [False, True], ids=["goes on", "is stopped"])
def test_a_message_as_it_ends_is_read_and_its_report_comes(stops):
    async def send_at_the_end(agent, child):
        turn, pool, said = child.link.turn, agent.sub_agents, []

        def send():
            said.append(TurnAgents(pool, turn).send("explore-1", "More.", "call", interrupt=False))
            if stops:
                pool.stop(child, "stopped again")

        def end(status, problem):
            del child.end
            child.end(status, problem)
            asyncio.get_running_loop().call_soon(send)  # before the pool hears of it

        child.end = end
        pool.stop(child, "enough")
        await child.ended
        return said

    with at_work("More of it.") as (agent, _, child):
        assert on_loop(agent, send_at_the_end(agent, child)) == [
            "explore-1 goes on with your message."
        ]
        agent.run_sync("And?")
    assert child.status == ("stopped" if stops else "completed")
    assert [("More of it." in text) is not stops for text in reports(agent)] == [True]


STOPS = {
    "the person": (lambda pool, turn: pool.stop_by_person("explore-1"), "stopped by the person"),
    "the parent's end": (lambda pool, turn: pool.end_turn("x", "interrupted"), "was stopped"),
    "the program": (lambda pool, turn: pool.stop_all("closed"), "closed"),
    "its time": (lambda pool, turn: pool.agents["explore-1"].clock._on_late(), "is used up"),
    "the model": (lambda pool, turn: TurnAgents(pool, turn).close("explore-1"), ""),
}


@pytest.mark.parametrize(("stop", "why"), STOPS.values(), ids=STOPS)
def test_a_stop_holds_while_a_message_interrupts(stop, why):
    async def redirect_and_stop(pool, child):
        pool.redirect(child, child.link.turn, "call", "Go on.")
        stop(pool, child.link.turn)
        await child.ended

    with at_work("Never asked.") as (agent, model, child):
        on_loop(agent, redirect_and_stop(agent.sub_agents, child))
        assert child.status == "stopped"
        agent.run_sync("And?")
    assert len(model.requests("explore_1")) == 1
    assert [why in text for text in reports(agent)] == ([True] if why else [])


def test_wait_goes_on_until_what_follows_a_message_has_ended():
    async def redirect_and_wait(pool, child):
        pool.redirect(child, child.link.turn, "call", "Go on.")
        return await TurnAgents(pool, child.link.turn).wait((), PATIENCE)

    with at_work("Went on.") as (agent, _, child):
        said = on_loop(agent, redirect_and_wait(agent.sub_agents, child))
    assert said == "explore-1 (completed) has ended; what was reported follows."


def test_one_that_cannot_go_on_is_not_stopped_by_a_message():
    async def redirect(pool, child):
        child.budget = AgentBudget(requests=1)
        with pytest.raises(RespondToModel, match="its budget is used up"):
            pool.redirect(child, child.link.turn, "call", "Go on.")
        pool.stop_by_person("explore-1")  # which is what ends it
        await child.ended

    with at_work() as (agent, _, child):
        on_loop(agent, redirect(agent.sub_agents, child))
        assert child.problem == "stopped by the person"


def test_one_that_cannot_go_on_any_more_reports_it():
    async def redirect(pool, child):
        pool.redirect(child, child.link.turn, "call", "Go on.")
        child.budget = AgentBudget(requests=1)
        await child.ended

    with at_work() as (agent, _, child):
        on_loop(agent, redirect(agent.sub_agents, child))
        agent.run_sync("And?")
    assert "explore-1 has been stopped (explore-1 cannot go on: its budget" in reports(agent)[0]


def test_no_message_is_lost_while_another_one_interrupts():
    async def redirect_and_send(pool, child):
        parent = TurnAgents(pool, child.link.turn)
        parent.send("explore-1", "First.", "call", interrupt=True)
        for interrupt in (True, False):
            with pytest.raises(RespondToModel, match="reads no message yet"):
                parent.send("explore-1", "Second.", "call", interrupt=interrupt)
        await child.ended

    with at_work("Went on.") as (agent, model, child):
        on_loop(agent, redirect_and_send(agent.sub_agents, child))
    assert prompts(model.requests("explore_1")[1])[-1] == f"{TO_IT}First."


def test_a_stop_before_it_goes_on_lets_what_it_held_be_released():
    async def go_on_and_stop(pool, child):
        pool.stop_by_person("explore-1")
        await child.ended
        closing = pool._closing[child]
        pool.go_on(child, child.link.turn, "call", "Go on.")
        await asyncio.sleep(0)  # it waits for the closing by now
        pool.stop_by_person("explore-1")
        await child.ended
        await asyncio.wait([closing])
        return closing.cancelled(), child.problem

    with at_work() as (agent, _, child):
        said = on_loop(agent, go_on_and_stop(agent.sub_agents, child))
    assert said == (False, "stopped by the person")


# -- what it has not read --------------------------------------------------------------------------


@pytest.mark.parametrize("stop", [stop for stop, _ in STOPS.values()], ids=STOPS)
@pytest.mark.parametrize("go_on", ["send", "resume", "interrupt"])
def test_what_it_has_not_read_stands_before_its_next_prompt(stop, go_on):
    async def leave_and_go_on(pool, child):
        parent = TurnAgents(pool, child.link.turn)
        parent.send("explore-1", "Use 2024.", "call", interrupt=False)
        if go_on == "interrupt":
            parent.send("explore-1", "Count.", "call", interrupt=True)
        stop(pool, child.link.turn)
        await child.ended
        if go_on == "send":
            parent.send("explore-1", "Count.", "call", interrupt=False)
        else:
            parent.resume("explore-1", "call")
        await child.ended
        parent.send("explore-1", "More.", "call", interrupt=False)
        await child.ended

    words = {
        "send": "Use 2024.\n\nCount.",
        "resume": "Use 2024.\n\nGo on with your task.",
        "interrupt": "Use 2024.\n\nCount.\n\nGo on with your task.",
    }
    with at_work("Went on.", "And on.") as (agent, model, child):
        on_loop(agent, leave_and_go_on(agent.sub_agents, child))
    first, second = model.requests("explore_1")[1:]
    assert prompts(first)[1:] == [f"{TO_IT}{words[go_on]}"]
    assert prompts(second)[1:] == [f"{TO_IT}{words[go_on]}", f"{TO_IT}More."]


def test_two_messages_of_which_one_interrupts_are_both_read():
    async def speak(pool, child):
        parent = TurnAgents(pool, child.link.turn)
        parent.send("explore-1", "Use 2024.", "call", interrupt=False)
        parent.send("explore-1", "Count.", "call", interrupt=True)
        await child.ended

    with at_work("Counted.") as (agent, model, child):
        on_loop(agent, speak(agent.sub_agents, child))
        agent.run_sync("And?")
    assert prompts(model.requests("explore_1")[1])[-1] == f"{TO_IT}Use 2024.\n\nCount."
    assert "not read" not in reports(agent)[0]


def test_a_report_says_what_was_not_read():
    async def speak_and_stop(pool, child):
        TurnAgents(pool, child.link.turn).send("explore-1", "Use 2024.", "call", interrupt=False)
        pool.stop_by_person("explore-1")
        await child.ended

    with at_work() as (agent, _, child):
        on_loop(agent, speak_and_stop(agent.sub_agents, child))
        agent.run_sync("And?")
    assert "It has not read 'Use 2024.', and gets that first if it goes on." in reports(agent)[0]


def test_a_message_outlives_a_stop_before_it_is_read():
    async def go_on_twice(pool, child):
        parent = TurnAgents(pool, child.link.turn)
        pool.stop_by_person("explore-1")
        await child.ended
        parent.send("explore-1", "Use 2024.", "call", interrupt=False)
        await asyncio.sleep(0)  # it waits for what it held to be released by now
        pool.stop_by_person("explore-1")
        await child.ended
        parent.send("explore-1", "Count.", "call", interrupt=False)
        await child.ended

    with at_work("Counted.") as (agent, model, child):
        on_loop(agent, go_on_twice(agent.sub_agents, child))
    assert prompts(model.requests("explore_1")[1])[-1] == f"{TO_IT}Use 2024.\n\nCount."
