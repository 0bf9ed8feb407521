"""Budgets: a run that reaches one ends politely, with a summary, and can be gone on from."""

import pytest

from agent_magics import Agent, Call, ScriptedModel, tool
from agent_magics.models.base import ItemDone, ResponseDone
from agent_magics.models.providers.catalog import find_model
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import TokensCounted, TurnCompleted, Warned
from agent_magics.protocol.items import AssistantMessage, FunctionCall, Usage, UserMessage
from agent_magics.protocol.ops import Steer
from tests.support.models.responses_server import function_call
from tests.support.models.server import CHAT_USAGE, ModelServer, Reply, chat_events, tool_call
from tests.support.turns import assert_valid, of_kind, scripted


@tool
def note(text: str) -> str:
    """Say it back."""
    return f"noted {text}"


def calls(count):
    return [Call("note", {"text": str(number)}) for number in range(count)]


class CountingModel:
    """Gives items and a usage; what no script of ours can write."""

    source, name = "script", "gpt-5.5"

    def __init__(self, *responses):
        self._responses = list(responses)
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        item, usage = self._responses.pop(0)
        if isinstance(item, Exception):
            raise item
        yield ItemDone(item)
        yield ResponseDone(usage)

    async def close(self):
        pass


def a_call(number):
    return FunctionCall(f"c{number}", "note", f'{{"text": "{number}"}}')


def warnings(result):
    return [event.message for event in of_kind(result, Warned)]


def test_max_turns_ends_a_run_with_the_models_summary():
    model = ScriptedModel([*calls(2), "Two notes were made."])
    agent = Agent(model, [note], approval="never", max_turns=2)
    result = agent.run_sync("Go")
    assert (result.status, result.error, result.budget) == ("completed", None, "max_turns=2")
    assert result.text == "Two notes were made."
    assert len(result.calls) == 2
    assert ["max_turns=2" in said for said in warnings(result)] == [True]
    assert_valid(agent)


def test_the_summary_is_asked_for_without_tools_and_names_the_budget():
    model = ScriptedModel([*calls(1), "One."])
    Agent(model, [note], approval="never", max_turns=1).run_sync("Go")
    first, last = model.requests
    assert first.tools
    assert last.tools == ()
    told = last.history.items[-1]
    assert told.role == "developer"
    assert "max_turns=1" in told.content
    assert last.output_schema is None


def test_the_next_run_goes_on_with_a_budget_of_its_own():
    model = ScriptedModel([*calls(1), "One.", *calls(1), "Two."])
    agent = Agent(model, [note], approval="never", max_turns=1)
    assert agent.run_sync("Go").text == "One."
    result = agent.run_sync("Go on")
    assert (result.text, result.budget) == ("Two.", "max_turns=1")
    assert_valid(agent)


def test_a_run_that_ends_by_itself_has_no_budget_to_speak_of():
    result = scripted(*calls(1), "Done.", tools=[note], max_turns=2).run_sync("Go")
    assert (result.text, result.budget) == ("Done.", "")
    assert warnings(result) == []


def test_without_a_summary_one_sentence_is_said():
    agent = scripted(*calls(2), tools=[note], max_turns=2)  # the script has no third answer
    result = agent.run_sync("Go")
    assert (result.status, result.text, result.budget) == ("completed", "", "max_turns=2")
    reached, none = warnings(result)
    assert "max_turns=2" in reached
    assert none.startswith("The model gave no summary (The script has 2 answers")
    assert_valid(agent)


def test_a_model_that_goes_on_calling_is_not_obeyed():
    agent = scripted(*calls(3), tools=[note], max_turns=2)
    result = agent.run_sync("Go")
    assert result.status == "completed"
    assert len(result.calls) == 2
    assert "no summary" in warnings(result)[-1]
    assert_valid(agent)
    assert "budget" in agent.session.conversation.history.items[-1].output


@pytest.mark.parametrize(
    ("limits", "reached"), [({"max_tokens": 30}, "max_tokens=30"), ({"max_cost": 0.0004}, "0.0004")]
)
def test_tokens_and_cost_end_a_run_as_turns_do(limits, reached):
    answers = [(a_call(number), Usage(10, 5)) for number in range(2)]
    model = CountingModel(*answers, (AssistantMessage("Summed up."), Usage(20, 5)))
    agent = Agent(model, [note], approval="never", **limits)
    result = agent.run_sync("Go")
    assert (result.status, result.text) == ("completed", "Summed up.")
    assert reached in result.budget
    assert result.usage == Usage(40, 15)
    one = find_model("gpt-5.5").cost
    assert result.cost == pytest.approx(2 * one(Usage(10, 5)) + one(Usage(20, 5)))
    assert_valid(agent)


def test_what_the_person_added_meanwhile_stands_before_the_summary():
    agent = Agent(ScriptedModel([]), [], approval="never", max_turns=1)

    @tool
    def steer(turn: str = "") -> str:
        """Have the person say something."""
        turn_id = agent.session.turns.prompt
        agent.session.submit(Steer(turn_id=turn_id, content="Also look at March."))
        return "ok"

    model = ScriptedModel([Call("steer"), "Summed up."])
    agent = Agent(model, [steer], approval="never", max_turns=1)
    assert agent.run_sync("Go").text == "Summed up."
    said = [item.content for item in model.requests[-1].history.items if type(item) is UserMessage]
    assert said[1] == "Also look at March."


def test_a_failed_run_tells_what_it_cost():
    model = CountingModel((a_call(1), Usage(10, 5)), (FatalError("Nothing there."), None))
    result = Agent(model, [note], approval="never").run_sync("Go")
    assert (result.status, result.error) == ("failed", "Nothing there.")
    assert result.cost == pytest.approx(find_model("gpt-5.5").cost(Usage(10, 5)))


def test_the_cost_is_told_with_each_request_and_kept_for_the_conversation():
    model = CountingModel(*[(AssistantMessage("Hi."), Usage(10, 5, 4, 2)) for _ in range(2)])
    agent = Agent(model, [])
    first = agent.run_sync("One")
    agent.run_sync("Two")
    one = find_model("gpt-5.5").cost(Usage(10, 5, 4, 2))
    assert first.cost == pytest.approx(one)
    assert [event.cost for event in of_kind(first, TokensCounted)] == [pytest.approx(one)]
    assert agent.session.conversation.spending.cost == pytest.approx(2 * one)
    assert agent.session.conversation.spending.usage == Usage(20, 10, 8, 4)
    agent.reset()
    assert agent.session.conversation.spending.requests == 0


def test_a_price_that_is_not_known_is_never_nothing():
    model = CountingModel((AssistantMessage("Hi."), Usage(10, 5)))
    model.name = "gpt-99"
    result = Agent(model, []).run_sync("One")
    assert result.cost is None
    [end] = of_kind(result, TurnCompleted)
    assert end.unpriced == "gpt-99"


@pytest.mark.parametrize("model", ["gpt-99", "groq/openai/gpt-oss-120b"])
def test_a_budget_in_money_needs_a_price(model):
    with pytest.raises(FatalError) as refusal:
        Agent(model, max_cost=1)
    said = str(refusal.value)
    assert said.startswith(f"max_cost=1 cannot be kept: the price of {model} is not known")
    assert "\n" not in said
    with pytest.raises(FatalError, match="max_cost"):
        Agent("gpt-5.5").turn_config(model=model, max_cost=1)


def test_a_server_that_reports_its_costs_needs_no_price():
    agent = Agent("some/model", max_cost=1, base_url="https://openrouter.ai/api/v1", api_key="k")
    assert agent.config.max_cost == 1


def test_a_replay_costs_what_the_recorded_model_does(tmp_path):
    recording = tmp_path / "x.agent.jsonl"
    with (
        ModelServer(responses=["Hi."]) as server,
        Agent("gpt-4o-mini", [], base_url=server.base_url, record=recording) as agent,
    ):
        live = agent.run_sync("Go")
    played = Agent("gpt-5.5", [], replay=recording).run_sync("Go")
    assert live.cost == played.cost == find_model("gpt-4o-mini").cost(played.usage)


# -- over HTTP ------------------------------------------------------------------------------------

PAID = {**CHAT_USAGE, "cost": 0.25}


def paid(text="", calls=()):
    return Reply(events=chat_events(text, calls, usage=PAID))


def test_what_a_chat_server_reports_is_the_cost_and_ends_the_run():
    answers = [paid(calls=[tool_call("note", {"text": "a"}, f"c{n}")]) for n in range(2)]
    with (
        ModelServer(chat=[*answers, paid("Summed up.")]) as server,
        Agent(
            "gpt-5.5",
            [note],
            base_url=server.base_url,
            wire_api="chat",
            approval="never",
            max_cost=0.4,
        ) as agent,
    ):
        result = agent.run_sync("Go")
        bodies = [request.body for request in server.requests]
    assert (result.text, result.budget) == ("Summed up.", "max_cost=0.4")
    assert result.cost == pytest.approx(0.75)
    assert ["tools" in body for body in bodies] == [True, True, False]
    assert_valid(agent)


def test_a_responses_server_is_asked_for_the_summary_without_tools():
    replies = [Reply([function_call("note", {"text": "a"})]), "Summed up."]
    with (
        ModelServer(responses=replies) as server,
        Agent(
            "gpt-5.5", [note], base_url=server.base_url, approval="never", max_tokens=15
        ) as agent,
    ):
        result = agent.run_sync("Go")
        bodies = [request.body for request in server.requests]
    assert (result.text, result.budget) == ("Summed up.", "max_tokens=15")
    assert result.cost == pytest.approx(2 * find_model("gpt-5.5").cost(Usage(10, 5, 4, 2)))
    assert ["tools" in body for body in bodies] == [True, False]


def a_chat_call(text):
    return Reply(events=chat_events(calls=[tool_call("note", {"text": text}, f"call_{text}")]))


TOOLS_WANTED = (
    "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param",
    "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    "Requests which include `tool_use` or `tool_result` blocks must define tools",
)


@pytest.mark.parametrize("said", TOOLS_WANTED)
@pytest.mark.parametrize(
    ("last", "text"), [("Summed up.", "Summed up."), (a_chat_call("b"), "")], ids=["text", "call"]
)
def test_a_server_that_wants_tools_after_calls_is_asked_with_them(said, last, text, tmp_path):
    replies = [a_chat_call("a"), Reply(status=400, error=said), last]
    recording = tmp_path / "x.agent.jsonl"
    common = {"approval": "never", "max_turns": 1}
    with (
        ModelServer(chat=replies) as server,
        Agent(
            "m", [note], base_url=server.base_url, wire_api="chat", record=recording, **common
        ) as agent,
    ):
        result = agent.run_sync("Go")
        bodies = [request.body for request in server.requests]
    assert (result.status, result.text, result.budget) == ("completed", text, "max_turns=1")
    assert ["tools" in body for body in bodies] == [True, False, True]
    assert "tool_choice" not in bodies[2]  # there is none by which Bedrock forbids calls
    assert len(result.calls) == 1
    assert_valid(agent)
    played = Agent("m", [note], replay=recording, **common).run_sync("Go")
    assert (played.status, played.text, len(played.calls)) == ("completed", text, 1)


def test_a_request_with_tools_that_is_refused_for_them_fails():
    refused = Reply(status=400, error=TOOLS_WANTED[0])
    with (
        ModelServer(chat=[refused]) as server,
        Agent("m", [note], base_url=server.base_url, wire_api="chat") as agent,
    ):
        result = agent.run_sync("Go")
        assert len(server.requests) == 1
    assert result.status == "failed" and "without `tools=`" in result.error


def test_a_server_that_counts_nothing_is_warned_of():
    uncounted = Reply(events=chat_events("Hi.", usage=None))
    with (
        ModelServer(chat=[uncounted]) as server,
        Agent("m", [], base_url=server.base_url, wire_api="chat", max_tokens=10) as agent,
    ):
        result = agent.run_sync("Go")
    assert result.cost is None
    assert any("max_tokens=10" in said for said in warnings(result))
