"""A model that goes round in circles: it is told, then the person is asked, and nothing breaks."""

import itertools
import json

import pytest

from agent_magics import Agent, Call, ScriptedModel, ToolContext, tool
from agent_magics.models.base import ToolsWanted
from agent_magics.protocol.events import (
    ApprovalDecided,
    ApprovalRequested,
    ModelInformed,
    PromptAdded,
    ToolCallFailed,
    TurnAborted,
)
from agent_magics.protocol.items import ToolCallOutput, UserMessage
from tests.support.turns import assert_valid, of_kind, outputs, scripted


@tool(mutating=False)
def peek(what: str) -> str:
    """Look at something that never changes."""
    return f"{what} is as it was"


@tool(mutating=False)
def draw() -> int:
    """Draw the next number."""
    return next(NUMBERS)


NUMBERS = itertools.count()


class Stubborn:
    """Makes the same call again and again, until it may not or a script's end has come."""

    source, name = "script", "stubborn"

    def __init__(self, most: int, names: str = "peek") -> None:
        calls = {
            "peek": Call("peek", {"what": "a"}),
            "other": Call("peek", {"what": "b"}),
            "draw": Call("draw"),
        }
        cycle = itertools.cycle(names.split())
        self.left = most
        self.requests = []
        self._model = ScriptedModel(
            [lambda request: self._next(request, calls[next(cycle)])] * (most + 5)
        )

    def _next(self, request, call):
        self.requests.append(request)
        self.left -= 1
        return call if request.tool_choice != "none" and self.left >= 0 else "That is all I know."

    def stream(self, request):
        return self._model.stream(request)

    async def close(self) -> None:
        """Nothing is held."""


def told(agent) -> list[str]:
    items = agent.session.conversation.history.items
    return [i.content for i in items if isinstance(i, UserMessage) and i.role == "developer"]


def agent_of(model, **options) -> Agent:
    return Agent(model, [peek, draw], **{"approval": "on-request", **options})


def test_after_three_the_model_is_told_and_may_mend_its_ways():
    agent = agent_of(Stubborn(3))
    result = agent.run_sync("Go.")
    assert (result.status, result.text) == ("completed", "That is all I know.")
    (note,) = told(agent)
    assert note.startswith(
        "You repeat yourself: the same call, the same result (peek), 3 times so far."
    )
    (event,) = of_kind(result, ModelInformed)
    assert event.message == note
    assert event.shown == "The agent was told that it repeats itself."
    assert isinstance(
        agent.session.conversation.history.items[-3], ToolCallOutput
    )  # told after the output
    assert of_kind(result, ApprovalRequested) == []


def test_two_are_no_circle():
    agent = agent_of(Stubborn(2))
    agent.run_sync("Go.")
    assert told(agent) == []


def test_then_the_person_is_asked_and_may_let_it_go_on():
    asked = []

    def yes(question):
        asked.append(question)
        return "approve"

    agent = agent_of(Stubborn(6), on_question=yes)
    result = agent.run_sync("Go.")
    assert (result.status, result.text) == ("completed", "That is all I know.")
    (question,) = asked
    assert question.tool == "peek"
    assert json.loads(question.arguments) == {"what": "a"}
    assert "goes round in circles: the same call, the same result (peek), 4" in question.reason
    assert len(outputs(agent)) == 6  # the fifth ran, after the question
    assert_valid(agent)


def test_denied_it_has_a_last_word_and_no_more_calls():
    model = Stubborn(50)
    agent = agent_of(model, on_question=lambda question: "deny")
    result = agent.run_sync("Go.")
    assert (result.status, result.text) == ("completed", "That is all I know.")
    assert [request.tool_choice for request in model.requests] == ["auto"] * 5 + ["none"]
    assert model.requests[0].tools == model.requests[-1].tools  # what is cached stays so
    (failed,) = of_kind(result, ToolCallFailed)
    assert failed.output.startswith("Not run: the agent goes round in circles")
    assert "Say in a few words what you found" in failed.output
    (decided,) = [e for e in of_kind(result, ApprovalDecided) if e.basis == "loop guard"]
    assert (decided.decision, decided.by) == ("deny", "program")
    assert_valid(agent)
    # The conversation goes on, with calls.
    model.left = 1
    assert agent.run_sync("And b?").status == "completed"
    assert outputs(agent)[-1][1] == "a is as it was"


def test_a_server_that_cannot_forbid_calls_is_asked_for_the_last_word_without_that():
    class Bedrock(Stubborn):
        def _next(self, request, call):
            if request.tool_choice == "none":
                self.requests.append(request)
                raise ToolsWanted("Bedrock doesn't support tool_choice=none.")
            return super()._next(request, call)

    model = Bedrock(5)
    agent = agent_of(model, on_question=lambda question: "deny")
    result = agent.run_sync("Go.")
    assert (result.status, result.text) == ("completed", "That is all I know.")
    assert [request.tool_choice for request in model.requests[4:]] == ["auto", "none", "auto"]
    assert_valid(agent)


@pytest.mark.parametrize("options", [{}, {"approval": "never"}])
def test_where_nobody_can_be_asked_it_is_denied_with_a_reason(options):
    agent = agent_of(Stubborn(50), **options)
    result = agent.run_sync("Go.")
    assert (result.status, result.text) == ("completed", "That is all I know.")
    (failed,) = of_kind(result, ToolCallFailed)
    assert "it was not allowed to go on (nobody can be asked here)" in failed.output
    questions = of_kind(result, ApprovalRequested)
    assert len(questions) == (0 if options else 1)  # "never" asks nobody
    (decided,) = [e for e in of_kind(result, ApprovalDecided) if e.basis == "loop guard"]
    assert decided.by == "policy"


def test_stop_ends_the_turn():
    agent = agent_of(Stubborn(50), on_question=lambda question: "abort")
    result = agent.run_sync("Go.")
    assert result.status == "aborted"
    (aborted,) = of_kind(result, TurnAborted)
    assert "round in circles" in aborted.reason
    assert_valid(agent)


def test_a_call_in_the_last_word_is_not_run():
    class Deaf(Stubborn):
        def _next(self, request, call):
            self.requests.append(request)
            return call

    model = Deaf(20)
    agent = agent_of(model)
    result = agent.run_sync("Go.")
    assert result.status == "completed"
    assert len(model.requests) == 6
    assert outputs(agent)[-1][1] == "Not run: no more tools run in this turn."
    assert_valid(agent)


@pytest.mark.soak
def test_calls_that_take_turns_are_a_circle_too():
    agent = agent_of(Stubborn(6, "peek other"))
    agent.run_sync("Go.")
    (note,) = told(agent)
    assert "the same 2 calls in turn, 3 times" in note


def test_what_changes_is_none_until_much_later():
    agent = agent_of(Stubborn(29, "draw"))
    agent.run_sync("Go.")
    assert told(agent) == []
    agent = agent_of(Stubborn(30, "draw"))
    agent.run_sync("Go.")
    (note,) = told(agent)
    assert "the same call (draw), 30 times" in note


def test_it_is_counted_across_turns_but_a_cell_that_is_run_again_is_none():
    peeks = Call("peek", {"what": "a"})
    agent = scripted(peeks, peeks, "Done.", peeks, peeks, "Done.", tools=[peek])
    agent.run_sync("Go.")
    assert told(agent) == []
    agent.run_sync("Again.")
    (note,) = told(agent)
    assert "4 times so far" in note
    again = scripted(*[peeks, "Done."] * 6, tools=[peek])
    for _ in range(6):
        again.run_sync("Go.")
    assert told(again) == []


def test_the_same_words_beside_the_calls():
    words = "Now I am going to look at it once more."
    turns = [[words, Call("peek", {"what": str(number)})] for number in range(4)]
    agent = scripted(*turns, "Done.", tools=[peek])
    agent.run_sync("Go.")
    (note,) = told(agent)
    assert "the same words beside its calls, 4 times" in note


def test_the_limits_can_be_set():
    agent = agent_of(Stubborn(5), loops={"identical": 6})
    agent.run_sync("Go.")
    assert told(agent) == []
    agent = agent_of(Stubborn(2), loops={"identical": 2})
    agent.run_sync("Go.")
    assert len(told(agent)) == 1


def test_after_reset_nothing_is_remembered():
    peeks = Call("peek", {"what": "a"})
    agent = scripted(peeks, peeks, "Done.", peeks, peeks, "Done.", tools=[peek])
    agent.run_sync("Go.")
    agent.reset()
    agent.run_sync("Go.")
    assert told(agent) == []


@tool(mutating=False, parallel=True)
async def watch(times: int, ctx: ToolContext) -> str:
    """Look at the same thing again and again, as code may."""
    outputs = [(await ctx.call("peek", {"what": "a"})).text for _ in range(times)]
    return f"{len(outputs)} looks"


@pytest.mark.soak
def test_calls_that_code_makes_are_told_only_where_a_long_row_is_the_very_same():
    agent = Agent(ScriptedModel([Call("watch", {"times": 50}), "Done."]), [peek, watch])
    result = agent.run_sync("Go.")
    assert result.text == "Done." and told(agent) == []
    assert sum(call.success for call in result.calls) == 51
    agent.close()
    model = ScriptedModel([Call("watch", {"times": 1_000}), "Done."])
    agent = Agent(model, [peek, watch], loops={"nested": 100})
    result = agent.run_sync("Go.")
    assert result.text == "Done."
    (note,) = told(agent)
    assert note.startswith("Your code called peek 100 times in a row or more")
    assert of_kind(result, ApprovalRequested) == []
    assert sum(call.success for call in result.calls) == 1_001
    agent.close()


@tool(mutating=False, parallel=True)
async def leaf_through(times: int, ctx: ToolContext) -> str:
    """Look at one thing after the other, as a loop over files does."""
    for n in range(times):
        await ctx.call("peek", {"what": str(n)})
    return "all seen"


def test_a_loop_over_many_things_is_no_circle():
    model = ScriptedModel([Call("leaf_through", {"times": 300}), "Done."])
    agent = Agent(model, [peek, leaf_through], loops={"nested": 10})
    assert agent.run_sync("Go.").text == "Done."
    assert told(agent) == []
    agent.close()


def test_words_that_come_during_the_last_word_are_answered():
    class Steered(Stubborn):
        def _next(self, request, call):
            if request.tool_choice == "none" and len(self.requests) == 5:
                agent.steer("Look at b instead.")
            return super()._next(request, call)

    model = Steered(5)
    agent = agent_of(model, on_question=lambda question: "deny")
    result = agent.run_sync("Go.")
    assert [event.text for event in of_kind(result, PromptAdded)] == ["Look at b instead."]
    assert UserMessage("Look at b instead.") in model.requests[-1].history.items
    assert len(model.requests) == 7
    assert_valid(agent)
