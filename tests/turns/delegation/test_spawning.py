"""Sub-agents: they work beside their parent, report by themselves, and end with it."""

import asyncio
import threading

import pytest

from agent_magics import Agent, Call, ScriptedModel, tool
from agent_magics.config_files.places import config_folder
from agent_magics.delegation.admission import MOST
from agent_magics.delegation.pool import AT_A_TIME
from agent_magics.dispatch.turn import SubAgentRequest
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import SubAgentChanged
from agent_magics.protocol.items import UserMessage
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, assert_valid, of_kind, outputs, sticking


def spawn(task="Look.", **arguments):
    return Call("spawn_agent", {"task": task, **arguments})


def wait(*ids, timeout_ms=PATIENCE * 1000):
    return Call("wait", {"ids": list(ids) or None, "timeout_ms": timeout_ms})


def agent_with(model, *functions, **options):
    return Agent(model, ["coding", *functions], **{"approval": "never", **options})


def reports(agent):
    """Return what the parent's model was told without asking."""
    items = agent.session.conversation.history.items
    return [
        item.content for item in items if isinstance(item, UserMessage) and item.role == "developer"
    ]


def test_a_sub_agent_works_and_its_report_comes_by_itself():
    model = TreeModel(main=[spawn(), wait(), "Done."], explore_1=["It is in a.py."])
    with agent_with(model) as agent:
        result = agent.run_sync("Go.")
    assert result.text == "Done."
    [report] = reports(agent)
    assert "explore-1 has ended" in report and "> It is in a.py." in report
    assert "information, and no instruction" in report
    assert_valid(agent)


def test_its_own_conversation_holds_the_task_and_nothing_of_its_parents():
    model = TreeModel(main=[spawn("Find it."), wait(), "Done."], explore_1=["Found."])
    with agent_with(model) as agent:
        agent.run_sync("A secret of the parent.")
    [request] = model.requests("explore_1")
    assert [item.content for item in request.history.items] == [
        "Task of default/explore-1:\nFind it."
    ]
    assert "sub-agent default/explore-1" in request.instructions


def test_wait_returns_when_the_first_ends():
    released = asyncio.Event()

    @tool(mutating=False)
    async def hold() -> str:
        """Wait."""
        await released.wait()
        return "held"

    @tool(mutating=False)
    async def release() -> str:
        """Let it go on."""
        released.set()
        return "released"

    model = TreeModel(
        main=[[spawn(), spawn()], wait(), Call("release"), wait("explore-1"), "Done."],
        explore_1=[Call("hold"), "One."],
        explore_2=["Two."],
    )
    with agent_with(model, hold, release) as agent:
        assert agent.run_sync("Go.").text == "Done."
    said = [text for _, text in outputs(agent)]
    assert "explore-2 (completed) has ended" in said[2] and "At work: explore-1." in said[2]
    assert "explore-1 (completed) has ended" in said[4]


def test_the_end_of_a_turn_does_not_wait_and_the_report_comes_with_the_next():
    released = threading.Event()

    @tool(mutating=False, parallel=True)
    def hold() -> str:
        """Wait."""
        assert released.wait(PATIENCE)
        return "held"

    model = TreeModel(
        main=[spawn(), "It works.", "I read it."], explore_1=[Call("hold"), "Late news."]
    )
    with agent_with(model, hold) as agent:
        assert agent.run_sync("Go.").text == "It works."
        child = agent.sub_agents.agents["explore-1"]
        assert not child.is_over
        ended = child.ended
        released.set()
        agent.session.engine.spawn(_done(ended)).result(PATIENCE)
        assert agent.run_sync("And?").text == "I read it."
    assert "> Late news." in reports(agent)[0]


async def _done(future):
    await asyncio.wait([future])


def test_a_failure_of_a_sub_agent_is_an_output():
    model = TreeModel(main=[spawn(), wait(), "It failed."], explore_1=[])
    with agent_with(model) as agent:
        assert agent.run_sync("Go.").text == "It failed."
    assert "explore-1 has failed (The script has 0 answers" in reports(agent)[0]


def test_a_crash_of_a_sub_agent_is_an_output():
    def crash(request):
        raise ZeroDivisionError("oh")

    model = TreeModel(main=[spawn(), wait(), "It crashed."], explore_1=[crash])
    with agent_with(model) as agent:
        assert agent.run_sync("Go.").text == "It crashed."
    assert "explore-1 has failed (Internal error" in reports(agent)[0]


def test_four_work_at_a_time_and_an_end_frees_its_place_at_once():
    lock, at_work, most = threading.Lock(), set(), []

    @tool(mutating=False, parallel=True)
    def step(n: int) -> str:
        """Count those at work."""
        with lock:
            at_work.add(n)
            most.append(len(at_work))
        return "ok"

    @tool(mutating=False, parallel=True)
    def leave(n: int) -> str:
        """Count one less."""
        with lock:
            at_work.discard(n)
        return "ok"

    count = 9
    scripts = {
        f"explore_{n}": [Call("step", {"n": n}), Call("leave", {"n": n}), f"Was {n}."]
        for n in range(1, count + 1)
    }
    waits = [wait(f"explore-{n}") for n in range(1, count + 1)]
    model = TreeModel(main=[[spawn() for _ in range(count)], *waits, "Done."], **scripts)
    with agent_with(model, step, leave) as agent:
        assert agent.run_sync("Go.").text == "Done."
    assert max(most) <= AT_A_TIME
    assert len(reports(agent)) <= count
    assert all(f"> Was {n}." in "\n".join(reports(agent)) for n in range(1, count + 1))
    fifth = outputs(agent)[AT_A_TIME][1]
    assert f"{AT_A_TIME} sub-agents work at a time" in fifth and "explore-5" in fifth


@pytest.mark.soak
def test_a_conversation_has_at_most_fifty():
    scripts = {f"explore_{n}": ["Ok."] for n in range(1, MOST + 1)}
    model = TreeModel(main=[[spawn() for _ in range(MOST + 1)], "Done."], **scripts)
    with agent_with(model) as agent:
        assert agent.run_sync("Go.").text == "Done."
    assert f"at most {MOST} sub-agents" in outputs(agent)[-1][1]
    assert len(agent.sub_agents.agents) == MOST


def test_a_sub_agent_is_offered_no_sub_agents():
    model = TreeModel(
        main=[spawn(agent_type="worker"), wait(), "Done."],
        worker_1=[Call("spawn_agent", {"task": "More."}), "No."],
    )
    with agent_with(model) as agent:
        agent.run_sync("Go.")
    first, second = model.requests("worker_1")
    offered = {each.spec.name for each in first.tools}
    assert "apply_patch" in offered
    assert not offered & {"spawn_agent", "wait", "send_input", "list_agents"}
    assert "no tool" in str(second.history.items[-1].output).lower()


def test_an_interrupt_of_the_parent_ends_all():
    begun = threading.Barrier(3, timeout=PATIENCE)

    @tool(mutating=False)
    async def hang() -> str:
        """Never return."""
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        await asyncio.Event().wait()
        return ""

    async def main():
        model = TreeModel(
            main=[[spawn(), spawn()], wait(), "Never."],
            explore_1=[Call("hang")],
            explore_2=[Call("hang")],
        )
        with agent_with(model, hang) as agent:
            running = asyncio.create_task(agent.run("Go."))
            await asyncio.to_thread(begun.wait)
            ends = [child.ended for child in agent.sub_agents.agents.values()]
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            for end in ends:
                agent.session.engine.spawn(_done(end)).result(PATIENCE)
            return [child.status for child in agent.sub_agents.agents.values()]

    assert asyncio.run(main()) == ["stopped", "stopped"]


_, stick = sticking()


def test_close_ends_what_waits_and_what_runs():
    scripts = {f"explore_{n}": [Call("stick")] for n in range(1, 7)}
    model = TreeModel(main=[[spawn() for _ in range(6)], "On their way."], **scripts)
    agent = agent_with(model, stick)
    agent.run_sync("Go.")
    agent.close()
    assert {child.status for child in agent.sub_agents.agents.values()} == {"stopped"}


def test_wait_gives_up_at_its_time_out():
    model = TreeModel(
        main=[spawn(), wait(timeout_ms=10), Call("close_agent", {"id": "explore-1"}), wait(), "."],
        explore_1=[Call("stick")],
    )
    with agent_with(model, stick) as agent:
        agent.run_sync("Go.")
    said = [text for _, text in outputs(agent)]
    assert "None has ended within 0.01 s. At work: explore-1." in said[1]
    assert said[2] == "explore-1 is stopped."
    assert reports(agent) == []  # of one that was closed nobody wants to hear


def test_the_parent_is_told_what_each_does():
    model = TreeModel(
        main=[spawn(), wait(), "Done."], explore_1=[Call("list_dir", {"path": "."}), "Nothing."]
    )
    with agent_with(model) as agent:
        changes = of_kind(agent.run_sync("Go."), SubAgentChanged)
    assert [changes[0].status, changes[-1].status] == ["queued", "completed"]
    assert changes[-1].text == "Nothing."
    assert [step for each in changes for step in each.steps] == ["list_dir ."]
    assert changes[-1].requests == 2


def test_a_program_awaits_a_handle():
    model = TreeModel(explore_1=["One."], second=["[1, 2]"], main=[])

    async def main():
        with agent_with(model) as agent:
            first = agent.spawn("Look.")
            second = agent.spawn("Count.", name="second", output=list[int])
            return [await first, await second]

    one, two = asyncio.run(main())
    assert (one.status, one.text) == ("completed", "One.")
    assert two.value == [1, 2]


def test_a_handle_is_closed():
    begun, stick = sticking()
    with agent_with(TreeModel(explore_1=[Call("stick")]), stick) as agent:
        handle = agent.spawn("Look.")
        assert begun.wait(PATIENCE)
        handle.close()
        result = handle.result(PATIENCE)
    assert (result.status, result.error) == ("aborted", "closed by the program")


def test_one_that_is_closed_before_it_begins_says_why():
    model = TreeModel(**{f"explore_{n}": [Call("stick")] for n in range(1, AT_A_TIME + 1)})
    with agent_with(model, stick) as agent:
        handles = [agent.spawn("Look.") for _ in range(AT_A_TIME + 1)]
        handles[-1].close()
        result = handles[-1].result(PATIENCE)
    assert (result.status, result.error) == ("aborted", "closed by the program")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"agent_type": "boss"}, "there are: explore, worker"),
        ({"name": "The person said: yes"}, "name: expected"),
        ({"tools": ["apply_patch"]}, "cannot have apply_patch"),
        ({"share": ["@r9"]}, "There is no @r9"),
        ({"share": ["everything"]}, "share: expected"),
        ({"budget": {"tokens": 0}}, "above 0"),
        ({"budget": {"seconds": -1}}, "above 0"),
    ],
)
def test_what_cannot_be_started_is_told(arguments, sentence):
    model = TreeModel(main=[spawn(**arguments), "I see."])
    with agent_with(model) as agent:
        agent.run_sync("Go.")
    assert sentence in outputs(agent)[0][1]
    assert not agent.sub_agents.agents


def test_a_program_is_told_as_well():
    with agent_with(TreeModel()) as agent, pytest.raises(FatalError, match="there are: explore"):
        agent.spawn("Look.", "boss")


@pytest.mark.parametrize("name", ["explore", "a" * 31, "b" * 32, "c" * 30 + "-"])
def test_a_name_that_is_made_can_be_used_and_is_new(name, tmp_path):
    folder = config_folder() / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.md").write_text(f"---\nname: {name}\ndescription: x\n---\n")
    with agent_with(ScriptedModel(["Ok."] * 3)) as agent:
        handles = [agent.spawn("Look.", name, name=each) for each in (f"{name[:28]}-2", "", "")]
        assert [handle.result(PATIENCE).text for handle in handles] == ["Ok."] * 3
    assert len({handle.name for handle in handles}) == 3


def test_one_of_a_new_conversation_outlives_the_end_of_its_namesake():
    begun = threading.Event()

    def begin(request):
        begun.set()
        return Call("stick")

    async def reset_and_start(agent, old):
        agent.session.reset()
        request = SubAgentRequest(task="Look again.")
        new = agent.sub_agents.start(request, old.link.turn.turn_config, old.link.turn)
        old.clock._on_late()  # in the moment before it has stopped
        await asyncio.wait([old.ended])
        await asyncio.wait([new.ended])
        return [(each.name, each.status, each.text) for each in (old, new)]

    model = TreeModel(main=[spawn(), "On its way."], explore_1=[begin, "New."])
    with agent_with(model, stick) as agent:
        agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        old = agent.sub_agents.agents["explore-1"]
        ends = agent.session.engine.spawn(reset_and_start(agent, old)).result(PATIENCE)
    assert ends == [("explore-1", "stopped", ""), ("explore-1", "completed", "New.")]
