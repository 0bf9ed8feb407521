"""Words and prompts that the person adds while an agent works: heard in time, or given back."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics import Agent, Call, FatalError, ScriptedModel, tool
from agent_magics.engine.channels.additions import MOST_CHARACTERS, MOST_WAITING
from agent_magics.engine.turns.loop import STEERED
from agent_magics.protocol.events import (
    PromptAdded,
    PromptsQueued,
    QuestionResolved,
    ToolCallFailed,
    Warned,
)
from agent_magics.protocol.items import UserMessage
from agent_magics.protocol.ops import DropPrompt, QueuePrompt
from agent_magics.text.brief import number_of
from tests.support.turns import (
    StuckModel,
    assert_valid,
    in_thread,
    kinds,
    of_kind,
    outputs,
    scripted,
)

MARCH = "Only March, please."


def steering(agent: list[Agent], *, parallel: bool = False) -> Any:
    """Return a tool whose call has the person say something; it then ends as usual."""

    @tool(parallel=parallel)
    def steer() -> str:
        """Say more."""
        agent[0].steer(MARCH)
        return "steered"

    return steer


def noting(ran: list[int]) -> Any:
    """Return a tool that notes that it ran."""

    @tool
    def note(n: int) -> str:
        """Take a note."""
        ran.append(n)
        return f"noted {n}"

    return note


def test_calls_that_run_end_and_those_not_begun_are_not_run() -> None:
    ran: list[int] = []
    agents: list[Agent] = []
    calls = [Call("note", {"n": 1}), Call("steer"), Call("note", {"n": 2}), Call("note", {"n": 3})]
    model = ScriptedModel([calls, "Of March."])
    agents.append(Agent(model, [noting(ran), steering(agents)], approval="never"))
    result = agents[0].run_sync("Go")
    assert ran == [1]
    said = [output for _, output in outputs(agents[0])]
    assert said == ["noted 1", "steered", STEERED, STEERED]
    assert model.requests[1].history.items[-1] == UserMessage(MARCH)
    assert [event.text for event in of_kind(result, PromptAdded)] == [MARCH]
    assert [event.details["not_run"] for event in of_kind(result, ToolCallFailed)] == [True, True]
    assert result.text == "Of March."
    assert_valid(agents[0])


def test_an_open_question_is_closed_by_words() -> None:
    ran: list[int] = []

    async def on_question(event: Any) -> str:
        agent.steer(MARCH)
        await asyncio.Event().wait()
        return "approve"

    model = ScriptedModel([Call("note", {"n": 1}), "Of March."])
    agent = Agent(model, [noting(ran)], approval="untrusted", on_question=on_question)
    result = agent.run_sync("Go")
    assert (ran, result.text) == ([], "Of March.")
    assert [event.decision for event in of_kind(result, QuestionResolved)] == ["closed"]
    assert [output for _, output in outputs(agent)] == [STEERED]


def test_calls_of_an_answer_that_was_still_coming_are_not_run() -> None:
    ran: list[int] = []

    class Steered(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            if request.number == 1:
                agent.steer(MARCH)
            async for event in super().stream(request):
                yield event

    agent = Agent(Steered([Call("note", {"n": 1}), "Of March."]), [noting(ran)], approval="never")
    assert agent.run_sync("Go").text == "Of March."
    assert ran == []
    assert [output for _, output in outputs(agent)] == [STEERED]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["shared", "alone", "asks"]), min_size=1, max_size=6), st.data())
def test_each_call_runs_once_or_is_told_that_it_did_not(shapes: list[str], data: Any) -> None:
    at = data.draw(st.integers(0, len(shapes) - 1))
    ran: list[int] = []

    def work(n: int) -> str:
        ran.append(n)
        if n == at:
            agent.steer(MARCH)
        return f"ran {n}"

    @tool(parallel=True, mutating=False)
    def shared(n: int) -> str:
        """Run beside others."""
        return work(n)

    @tool(mutating=False)
    def alone(n: int) -> str:
        """Run alone."""
        return work(n)

    @tool
    def asks(n: int) -> str:
        """Run after a yes."""
        return work(n)

    calls = [Call(shape, {"n": n}) for n, shape in enumerate(shapes)]
    agent = Agent(
        ScriptedModel([calls, "Done."]),
        [shared, alone, asks],
        approval="untrusted",
        on_question=lambda event: "approve",
    )
    with agent:
        result = agent.run_sync("Go")
        assert result.status == "completed"
        assert_valid(agent)
        assert at in ran
        assert len(set(ran)) == len(ran)
        expected = [f"ran {n}" if n in ran else STEERED for n in range(len(shapes))]
        assert [output for _, output in outputs(agent)] == expected


def test_queued_prompts_run_in_order_after_the_last_word() -> None:
    @tool
    def plan() -> str:
        """Have the person think of more."""
        ids.extend(agent.queue(text) for text in ("Second", "Never", "Third"))
        assert [each.text for each in agent.queued] == ["Second", "Never", "Third"]
        assert agent.unqueue(ids[1])
        assert not agent.unqueue(ids[1])
        return "planned"

    ids: list[str] = []
    model = ScriptedModel([Call("plan"), "One.", "Two.", "Three."])
    agent = Agent(model, [plan], approval="never")
    result = agent.run_sync("First")
    assert result.text == "Three."
    assert [request.history.items[-1] for request in model.requests[2:]] == [
        UserMessage("Second"),
        UserMessage("Third"),
    ]
    assert [event.text for event in of_kind(result, PromptAdded)] == ["Second", "Third"]
    waiting = [[each.text for each in e.prompts] for e in of_kind(result, PromptsQueued)]
    assert waiting[-3:] == [["Second", "Third"], ["Third"], []]
    assert kinds(result).count("TurnCompleted") == 1
    assert agent.queued == ()


def test_ops_add_prompts_and_take_them_back() -> None:
    @tool
    def plan() -> str:
        """Have a client think of more."""
        [turn_id] = agent.session.turns.under_way
        for name in ("a", "b"):
            agent.session.submit(QueuePrompt(turn_id=turn_id, prompt_id=name, content=name))
        agent.session.submit(DropPrompt(prompt_id="a"))
        agent.session.submit(QueuePrompt(turn_id="other", prompt_id="c", content="c"))
        return "planned"

    agent = scripted(Call("plan"), "One.", "Two.", tools=[plan])
    result = agent.run_sync("First")
    assert [event.text for event in of_kind(result, PromptAdded)] == ["b"]
    (warned,) = of_kind(result, Warned)
    assert warned.message.startswith("Words for the turn 'other' were dropped: ")


@pytest.mark.parametrize("add", [Agent.steer, Agent.queue])
def test_with_nothing_at_work_it_is_one_sentence(add: Any) -> None:
    agent = scripted("One.")
    agent.run_sync("Go")
    with pytest.raises(FatalError, match=r"^Agent 'default' is not at work on a prompt, .*\.$"):
        add(agent, MARCH)
    assert agent.queued == ()


@pytest.mark.parametrize("add", ["steer", "queue"])
@pytest.mark.parametrize(
    ("size", "taken"),
    [
        (1, MOST_WAITING),
        (MOST_CHARACTERS // 4, 4),
        (MOST_CHARACTERS - 1, 1),
        (MOST_CHARACTERS + 1, 0),
    ],
)
def test_of_a_flood_only_so_much_waits_and_the_rest_is_refused(
    add: str, size: int, taken: int
) -> None:
    """Each addition records and shows all that waits."""
    refusals: list[str] = []

    @tool
    def flood() -> str:
        """Say very much."""
        for _ in range(taken + 3):
            try:
                getattr(agent, add)("x" * size)
            except FatalError as error:
                refusals.append(str(error))
        return "said"

    agent = scripted(Call("flood"), "Heard.", tools=[flood], max_turns=2)
    agent.run_sync("Go.")
    assert len(refusals) == 3 and f"{number_of(taken, 'message')} wait for agent" in refusals[0]


def test_a_call_by_hand_takes_no_words() -> None:
    @tool
    def look() -> str:
        """Say more in the middle of a call that no model made."""
        agent.steer(MARCH)
        return "never"

    agent = scripted(tools=[look])
    with pytest.raises(FatalError, match="not at work on a prompt"):
        agent.call_sync("look")


@pytest.mark.parametrize("ending", ["stopped", "failed", "budget"])
def test_what_was_not_heard_is_given_back(ending: str) -> None:
    @tool
    def plan() -> str:
        """Say more in a turn that ends badly."""
        agent.queue("What of April?")
        if ending == "failed":
            raise FatalError("It broke.")
        return "planned"

    @tool
    def wait() -> str:
        """End the turn at a question."""
        return "never"

    agent = Agent(
        ScriptedModel([Call("plan"), Call("wait"), "Summed up."]),
        [plan, wait],
        approval="untrusted",
        on_question=lambda event: "abort" if event.tool == "wait" else "approve",
        max_turns=1 if ending == "budget" else 10,
    )
    result = agent.run_sync("Go")
    messages = [event.message for event in of_kind(result, Warned)]
    assert "Not sent, since the turn ended before it: What of April?" in messages
    assert agent.queued == ()


def test_a_model_that_says_nothing_more_is_stopped_with_the_words_given_back() -> None:
    model = StuckModel()
    agent = Agent(model, [])
    run = in_thread(lambda: agent.run_sync("Go"))
    assert model.streaming.wait(20)
    agent.steer(MARCH)
    agent.close()
    result = run.result()
    assert result.status == "aborted"
    assert f"Not sent, since the turn ended before it: {MARCH}" in [
        event.message for event in of_kind(result, Warned)
    ]


@pytest.mark.soak
def test_whatever_is_taken_in_is_heard_or_given_back() -> None:
    """Other threads add while turns begin and end; nothing is lost, and nothing comes twice."""
    agent = scripted(*["Ok."] * 5_000)
    taken: list[str] = []
    over = threading.Event()

    def add(which: int) -> None:
        count = 0
        while not over.is_set() and count < 300:
            text = f"<{which}.{count}>"
            try:
                (agent.steer if count % 2 else agent.queue)(text)
            except FatalError:
                continue
            taken.append(text)
            count += 1

    adding = [in_thread(lambda which=which: add(which)) for which in range(3)]
    results = [agent.run_sync("Go") for _ in range(30)]
    over.set()
    for each in adding:
        each.result()
    heard = [event.text for result in results for event in of_kind(result, PromptAdded)]
    back = [
        event.message.rpartition(": ")[2]
        for result in results
        for event in of_kind(result, Warned)
        if event.message.startswith("Not sent")
    ]
    assert taken
    assert sorted(heard + back) == sorted(taken)
    items = agent.session.conversation.history.items
    said = [item.content for item in items if isinstance(item, UserMessage) and item.role == "user"]
    assert [text for text in said if text != "Go"] == heard
