"""A sub-agent gets the live kernel only if it is given: one at a time, and the person is asked."""

import asyncio
import threading

import pytest

from agent_magics import Call, tool
from agent_magics.config_files.places import config_folder
from agent_magics.dispatch.turn import LiveResult
from agent_magics.engine.front_end import FRONT_ENDS, FrontEnd
from agent_magics.protocol.errors import FatalError
from tests.support.models.tree import TreeModel
from tests.support.turns import PATIENCE, happened, outputs, sticking
from tests.turns.delegation.test_spawning import agent_with, reports, spawn, wait

SHARED = {"agent_type": "worker", "share": ["kernel"]}
RUN = Call("python", {"code": "x = 1"})


class Kernel:
    """A live kernel that notes what runs in it; code "hold" awaits `held` first."""

    document = None

    def __init__(self):
        self.namespace = {}
        self.ran = []
        self.inside = 0
        self.held = None

    def keep_code(self, code, session_id, copied):
        """Take note of nothing."""

    async def run(self, code, context):
        self.inside += 1
        assert self.inside == 1, "two pieces of live code at a time"
        if code == "hold":
            await self.held(context)
        self.ran.append((context.agent, code))
        self.inside -= 1
        return LiveResult("ran")


@pytest.fixture(autouse=True)
def kernel():
    """Return the live kernel of this process."""
    kernel = Kernel()
    FRONT_ENDS.register(lambda: FrontEnd(live_kernel=kernel))
    yield kernel
    FRONT_ENDS.register(None)


def said_to(model, name):
    items = model.requests(name)[-1].history.items
    return [str(item.output) for item in items if hasattr(item, "output")]


def test_it_runs_there_only_if_it_was_shared(kernel):
    live = Call("python", {"code": "x = 1", "where": "live"})
    model = TreeModel(
        main=[spawn(agent_type="worker"), wait(), spawn(**SHARED), wait(), "Done."],
        worker_1=[live, "Refused."],
        worker_2=[RUN, "Ran."],
    )
    with agent_with(model, "python") as agent:
        agent.run_sync("Go.")
    assert 'where="live" is switched off here' in said_to(model, "worker_1")[0]
    assert kernel.ran == [("default/worker-2", "x = 1")]
    assert "> Ran." in reports(agent)[-1]
    python = {each.spec.name: each.spec for each in model.requests("worker_2")[0].tools}["python"]
    assert "read_file(" in python.description and "spawn_agent(" not in python.description


def test_the_type_of_a_file_can_have_it(kernel):
    folder = config_folder() / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    head = "---\nname: analyst\ndescription: x\ntools: [data]\npython: {}\n---\n"
    (folder / "analyst.md").write_text(head.format("live"))
    (folder / "other.md").write_text(head.format("anywhere").replace("analyst", "other"))
    model = TreeModel(main=[spawn(agent_type="analyst"), wait(), "Done."], analyst_1=[RUN, "Ran."])
    with agent_with(model, "python") as agent:
        agent.run_sync("Go.")
        assert "other" not in agent.sub_agents.types()
    assert kernel.ran == [("default/analyst-1", "x = 1")]


def test_the_person_is_asked_whatever_was_allowed_before(kernel):
    asked = []

    def on_question(question):
        asked.append((question.tool, question.reason))
        return "deny" if len(asked) == 4 else "approve_kind_for_session"

    model = TreeModel(
        main=[RUN, spawn(**SHARED), wait(), spawn(**SHARED), "Done."],
        worker_1=[RUN, "Ran."],
    )
    with agent_with(model, "python", approval="on-request", on_question=on_question) as agent:
        agent.run_sync("Go.")
    tools = [tool for tool, _ in asked]
    assert tools == ["python", "spawn_agent", "python", "spawn_agent"]
    assert "the sub-agent's Python would run in your kernel" in asked[1][1]
    assert asked[2][1].startswith("default/worker-1 asks: ")
    assert kernel.ran == [("default", "x = 1"), ("default/worker-1", "x = 1")]
    assert [*agent.sub_agents.agents] == ["worker-1"]


def test_one_at_a_time_has_it():
    begun, stick = sticking()
    again = Call("send_input", {"id": "worker-1", "message": "Again."})
    model = TreeModel(
        main=[spawn(**SHARED), wait(), spawn(**SHARED), spawn(**SHARED), again, "Done."],
        worker_1=["Ok.", "Ok."],
        worker_2=[Call("stick")],
    )
    with agent_with(model, "python", stick) as agent:
        agent.run_sync("Go.")
        assert begun.wait(PATIENCE)
        assert [*agent.sub_agents.agents] == ["worker-1", "worker-2"]
    refused = outputs(agent)[3:]
    assert len(refused) == 2
    for _, text in refused:
        assert text.startswith("worker-2 has the live kernel, which one sub-agent at a time may")


def test_it_can_be_shared_again_after_an_end(kernel):
    again = Call("send_input", {"id": "worker-1", "message": "Again."})
    model = TreeModel(
        main=[spawn(**SHARED), wait(), again, wait(), spawn(**SHARED), wait(), "Done."],
        worker_1=["Ok.", RUN, "Ok."],
        worker_2=[RUN, "Ok."],
    )
    with agent_with(model, "python") as agent:
        agent.run_sync("Go.")
    assert [name for name, _ in kernel.ran] == ["default/worker-1", "default/worker-2"]


def test_its_code_waits_while_that_of_its_parent_awaits(kernel):
    begun, called = threading.Event(), threading.Event()

    @tool(mutating=False)
    async def see() -> str:
        """Return when the parent's code runs."""
        await happened(begun)
        return ""

    class Watch:
        def before_tool(self, invocation):
            if invocation.tool == "python" and invocation.context.agent != "default":
                called.set()

    async def held(context):
        begun.set()
        await happened(called)
        for _ in range(50):  # so that it would have come by now
            await asyncio.to_thread(agent.session.engine.spawn(asyncio.sleep(0)).result)

    kernel.held = held
    hold = Call("python", {"code": "hold"})
    model = TreeModel(
        main=[spawn(**SHARED), hold, wait(), "Done."], worker_1=[Call("see"), RUN, "Ran."]
    )
    agent = agent_with(model, "python", see, hooks=[Watch()])
    with agent:
        assert asyncio.run(agent.run("Go.")).text == "Done."
    assert kernel.ran == [("default", "hold"), ("default/worker-1", "x = 1")]


def test_its_code_is_stopped_with_the_run_whose_thread_it_uses(kernel):
    begun, ended = threading.Event(), threading.Event()

    @tool(mutating=False, parallel=True)
    def see() -> str:
        """Return when the code runs."""
        assert begun.wait(PATIENCE)
        return ""

    async def held(context):
        begun.set()
        await asyncio.Event().wait()

    def last(request):
        ended.set()
        return "I see."

    kernel.held = held
    hold = Call("python", {"code": "hold"})
    model = TreeModel(main=[spawn(**SHARED), Call("see"), "On its way."], worker_1=[hold, last])
    with agent_with(model, "python", see) as agent:
        assert asyncio.run(agent.run("Go.")).text == "On its way."
        assert ended.wait(PATIENCE)
    assert said_to(model, "worker_1")[0].startswith("Not run to its end: it needs the person's own")


@pytest.mark.parametrize(
    ("options", "arguments", "sentence"),
    [
        ({"python": "scratch"}, SHARED, "There is no live kernel here"),
        ({"python": "off"}, SHARED, "There is no live kernel here"),
        ({}, {"share": ["kernel"]}, "type explore cannot get the kernel"),
        ({}, {**SHARED, "tools": ["read_file"]}, "type worker cannot get the kernel"),
    ],
)
def test_what_its_parent_has_not_it_cannot_get(options, arguments, sentence):
    model = TreeModel(main=[spawn(**arguments), "I see."])
    with agent_with(model, "python", **options) as agent:
        agent.run_sync("Go.")
    assert sentence in outputs(agent)[0][1]
    assert not agent.sub_agents.agents


def test_outside_a_notebook_and_for_a_program_there_is_none():
    with agent_with(TreeModel()) as agent:
        with pytest.raises(FatalError, match="Only a turn can give a sub-agent the live kernel"):
            agent.spawn("Compute.", "worker", share=["kernel"])
        FRONT_ENDS.register(None)
        model = TreeModel(main=[spawn(**SHARED), "I see."])
    with agent_with(model, "python") as agent:
        agent.run_sync("Go.")
        assert "There is no live kernel here" in outputs(agent)[0][1]
