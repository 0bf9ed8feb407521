"""Long conversations: what is left out, what stands in its place, and what is never lost."""

import asyncio
import json

import pytest

from agent_magics import Agent, Call, tool
from agent_magics.engine.context.compaction import PROMPT
from agent_magics.engine.context.summary import INSTRUCTIONS
from agent_magics.models.base import ContextOverflow, ItemDone, ResponseDone
from agent_magics.models.wires.responses.items import item_json
from agent_magics.models.wires.sse import reply_events
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import (
    HistoryCompacted,
    TokensCounted,
    TurnCompleted,
    TurnFailed,
    Warned,
)
from agent_magics.protocol.items import (
    CALL_TYPES,
    AssistantMessage,
    FunctionCall,
    Reasoning,
    ToolCallOutput,
    Usage,
    UserMessage,
)
from agent_magics.protocol.ops import Compact, new_turn_id
from tests.support.turns import PATIENCE, StuckModel, assert_valid, happened, of_kind, scripted

WINDOW = 20_000
# Of it a third is left for the answer (16,384 are more than that), and a tenth of the rest free.
LIMIT = int((WINDOW - WINDOW // 3) * 0.9)


@tool
def look(what: str) -> str:
    """Look at something; it is long."""
    return f"{what}: " + what * 8_000


def answer(*items, tokens: int) -> bytes:
    """An answer whose request had so many tokens, by the provider's count."""
    usage = {"input_tokens": tokens, "output_tokens": 0}
    return b"".join(reply_events([item_json(item) for item in items], usage=usage))


def looks(number: int, tokens: int) -> bytes:
    arguments = json.dumps({"what": "abcdefghij"[number]})
    return answer(FunctionCall(f"c{number}", "look", arguments), tokens=tokens)


def conversation(*turns, tools=(look,), window: int = WINDOW, **options) -> Agent:
    return scripted(*turns, tools=tools, context_window=window, **options)


def sent(agent: Agent, request: int) -> tuple:
    return agent._models.given.requests[request].history.sent


def notes_of(items) -> list[str]:
    return [i.content for i in items if isinstance(i, UserMessage) and i.role == "developer"]


def outputs_of(items) -> list[str]:
    return [item.output for item in items if isinstance(item, ToolCallOutput)]


def assert_sendable(items) -> None:
    """Check that every call has exactly one output, after it."""
    open_calls = []
    for item in items:
        if isinstance(item, CALL_TYPES):
            open_calls.append(item.call_id)
        elif isinstance(item, ToolCallOutput):
            open_calls.remove(item.call_id)
    assert open_calls == []


# -- pruning -------------------------------------------------------------------------------------


def test_old_outputs_are_pruned_first_and_can_still_be_read():
    turns = [looks(number, 100 + 2_010 * number) for number in range(6)]
    agent = conversation(*turns, "Done.")
    result = agent.run_sync("Look around.")
    assert result.status == "completed"
    (event,) = of_kind(result, HistoryCompacted)
    assert (event.pruned, event.summary) == (4, "")
    assert event.items_before == event.items_after
    assert event.tokens_after < event.tokens_before
    before, after = outputs_of(sent(agent, 5)), outputs_of(sent(agent, 6))
    assert all(len(output) > 7_000 for output in before)
    assert after[4:] == outputs_of(agent.session.conversation.history.items)[4:]  # whole
    for output, line in zip(before, after[:4], strict=False):
        handle = line.removesuffix(".]").rpartition(" ")[2]
        assert line == f"[8,003 characters of output left out here; the whole is {handle}.]"
        kept = agent.session.conversation.handles.path_of(handle).read_text(encoding="utf-8")
        assert kept == output
    assert_sendable(sent(agent, 6))
    # The conversation itself, and so the record of it, has everything.
    assert all(
        len(output) > 7_000 for output in outputs_of(agent.session.conversation.history.items)
    )
    assert_valid(agent)


def test_below_the_limit_nothing_is_done():
    agent = conversation(looks(0, 500), looks(1, LIMIT - 3_000), "Done.")
    result = agent.run_sync("Look around.")
    assert of_kind(result, HistoryCompacted) == []
    assert sent(agent, 2) == agent._models.given.requests[2].history.items


# -- compaction ----------------------------------------------------------------------------------

STEPS = [{"id": "1", "description": "look at b", "status": "in_progress"}]


def test_then_the_model_writes_a_summary_and_the_work_goes_on_from_it():
    agent = conversation(
        answer(
            Reasoning(encrypted="sealed", id="rs_1"),
            AssistantMessage("I shall look."),
            FunctionCall("c0", "look", '{"what": "a"}'),
            FunctionCall("p", "update_plan", json.dumps({"steps": STEPS})),
            tokens=500,
        ),
        looks(1, LIMIT + 8_000),
        "What was found: a.",
        "Done.",
        tools=[look, "update_plan"],
    )
    result = agent.run_sync("Look around, and mind the gap.")
    assert (result.status, result.text) == ("completed", "Done.")
    (event,) = of_kind(result, HistoryCompacted)
    assert event.summary == "What was found: a."
    assert event.items_after < event.items_before
    asked = agent._models.given.requests[2]
    assert (asked.instructions, asked.tools) == (INSTRUCTIONS, ())
    assert asked.prompt == f"{PROMPT} Look around, and mind the gap."
    (record,) = asked.history.sent
    assert "mind the gap" in record.content and "## Call of look" in record.content
    said, note, *recent = sent(agent, 3)
    assert said == UserMessage("Look around, and mind the gap.")
    assert note.role == "developer"
    assert "What was found: a." in note.content
    assert "- [in_progress] 1: look at b" in note.content
    # The last step is whole, and nothing sealed is left without its answer.
    assert [type(item).__name__ for item in recent] == ["FunctionCall", "ToolCallOutput"]
    assert_sendable(sent(agent, 3))
    assert_valid(agent)


def test_a_summary_is_paid_for_but_is_no_request_of_the_turn():
    agent = conversation(
        looks(0, 500),
        looks(1, LIMIT + 8_000),
        answer(AssistantMessage("Short."), tokens=700),
        answer(AssistantMessage("Done."), tokens=900),
    )
    result = agent.run_sync("Go.")
    assert result.usage.input_tokens == 500 + LIMIT + 8_000 + 700 + 900
    assert len(of_kind(result, TokensCounted)) == 4
    assert result.events[-1].requests == 3
    assert [request.number for request in agent._models.given.requests] == [1, 2, 1, 3]


def test_open_sessions_are_named_in_what_stands_for_the_past(tmp_path):
    agent = conversation(
        Call("exec_command", {"cmd": "sleep 60", "yield_time_ms": 250}),
        looks(1, LIMIT + 8_000),
        "Short.",
        "Done.",
        tools=[look, "exec_command"],
        sandbox="danger-full-access",
        cwd=tmp_path,
    )
    agent.run_sync("Go.")
    (session,) = agent.session.conversation.processes.sessions()
    (note,) = notes_of(sent(agent, 3))
    assert f"- session {session.id}: sleep 60" in note
    agent.close()


def test_the_persons_words_stay_over_many_turns_and_summaries():
    turns = []
    for number in range(4):
        first, second = looks(2 * number, 500), looks(2 * number + 1, LIMIT + 8_000)
        turns += [first, second, f"Summary {number}.", f"Done {number}."]
    agent = conversation(*turns)
    for number in range(4):
        assert agent.run_sync(f"Prompt {number}.").status == "completed"
    items = agent.session.conversation.history.sent
    said = [i.content for i in items if isinstance(i, UserMessage) and i.role == "user"]
    assert said == [f"Prompt {number}." for number in range(4)]
    assert len(notes_of(items)) == 1  # an earlier summary is in the record of the next one
    records = [r.history.sent[0].content for r in agent._models.given.requests if not r.tools]
    assert len(records) >= 2 and "Summary 0." in records[1]
    assert_valid(agent)


FAILURES = {
    "an empty summary": (" ", "was empty"),
    "no answer": (b"event: error\ndata: {}\n\n", "failed at the provider"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_summary_that_fails_loses_nothing_and_says_so(case):
    reply, words = FAILURES[case]
    agent = conversation(looks(0, 500), looks(1, LIMIT + 8_000), reply, "Done.")
    result = agent.run_sync("Go.")
    assert (result.status, result.text) == ("completed", "Done.")
    (warning,) = of_kind(result, Warned)
    assert "could not be shortened" in warning.message and words in warning.message
    assert of_kind(result, HistoryCompacted) == []
    assert sent(agent, 3) == agent._models.given.requests[3].history.items


def test_after_a_failure_it_is_not_tried_again_at_each_request():
    agent = conversation(looks(0, 500), looks(1, LIMIT + 8_000), " ", looks(2, 900), "Done.")
    result = agent.run_sync("Go.")
    assert result.status == "completed"
    assert len(of_kind(result, Warned)) == 1


def test_an_interrupt_in_the_middle_of_a_summary_loses_nothing():
    class Half(StuckModel):
        async def stream(self, request):
            if request.tools:
                what = json.dumps({"what": "abc"[request.number]})
                yield ItemDone(FunctionCall(f"c{request.number}", "look", what))
                yield ResponseDone(Usage(8_000 * request.number, 1))
            else:
                async for event in super().stream(request):
                    yield event

    async def run():
        model = Half()
        agent = Agent(model, [look], approval="never", context_window=WINDOW)
        task = asyncio.create_task(agent.run("Go."))
        await happened(model.streaming)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await happened(model.closed)
        return agent

    agent = asyncio.run(run())
    assert agent.session.conversation.history.sent == agent.session.conversation.history.items
    assert_valid(agent)


def test_an_unknown_model_is_taken_for_one_of_ordinary_size_and_that_is_said():
    turns = [looks(0, 500), looks(1, 120_000), "Short.", "Done."]
    agent = scripted(*turns, tools=[look])
    agent.configure(model="nobodys-model")
    result = agent.run_sync("Go.")
    (warning,) = of_kind(result, Warned)
    assert "nobodys-model can read is not known; 128,000 tokens are taken" in warning.message
    assert len(of_kind(result, HistoryCompacted)) == 1


def fields_of(config) -> dict:
    return {name: getattr(config, name) for name in config.__slots__}


# -- by hand -------------------------------------------------------------------------------------


def compact(agent: Agent) -> list:
    return agent.foreground().wait_blocking(Compact(turn_id=new_turn_id()), agent.turn_config())


def test_by_hand_everything_is_replaced():
    agent = conversation(looks(0, 500), "Done.", "It was about a.", "Well.")
    agent.run_sync("Look at a.")
    events = compact(agent)
    assert isinstance(events[-1], TurnCompleted)
    (done,) = (event for event in events if isinstance(event, HistoryCompacted))
    assert (done.items_before, done.items_after) == (4, 2)
    agent.run_sync("And?")
    said, note, prompt = sent(agent, 3)
    assert (said.content, prompt.content) == ("Look at a.", "And?")
    assert "It was about a." in note.content


def test_by_hand_it_says_why_not():
    agent = conversation("Hello.", "a " * 4_000)
    (failed,) = (event for event in compact(agent) if isinstance(event, TurnFailed))
    assert "nothing old enough" in failed.error
    agent.run_sync("Hi.")
    failed = compact(agent)[-1]
    assert "would not have been shorter" in failed.error and "nothing was lost" in failed.error
    assert agent.session.conversation.history.sent == agent.session.conversation.history.items


def test_by_hand_not_while_a_prompt_is_at_work():
    async def run():
        model = StuckModel()
        agent = Agent(model, [], approval="never")
        task = asyncio.create_task(agent.run("Go."))
        await happened(model.streaming)
        with pytest.raises(FatalError, match="at work on another prompt"):
            compact(agent)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


# -- too long for the provider -------------------------------------------------------------------


class Small:
    """A model that refuses what has more items than it likes, and writes summaries."""

    source, name = "script", "small"

    def __init__(self, most: int, summary: str | None = "Short.") -> None:
        self.most, self.summary = most, summary
        self.requests = []

    async def stream(self, request):
        items = list(request.history.sent)
        self.requests.append((request, items))
        if len(items) > self.most:
            raise ContextOverflow("The conversation is too long for the model (so it says).")
        if request.instructions == INSTRUCTIONS:
            if self.summary is None:
                raise FatalError("The line is dead.")
            yield ItemDone(AssistantMessage(self.summary))
        elif sum(isinstance(i, ToolCallOutput) for i in request.history.items) < 4:
            number = len(request.history.items)
            arguments = json.dumps({"what": "abcdefghij"[number % 10]})
            yield ItemDone(FunctionCall(f"c{number}", "look", arguments))
        else:
            yield ItemDone(AssistantMessage("Done."))
        yield ResponseDone()

    async def close(self) -> None:
        """Nothing is held."""


def test_what_the_provider_refuses_is_shortened_and_asked_once_more():
    model = Small(most=6)
    agent = Agent(model, [look], approval="never")
    result = agent.run_sync("Go.")
    assert (result.status, result.text) == ("completed", "Done.")
    assert len(of_kind(result, HistoryCompacted)) >= 1
    numbers = [request.number for request, _ in model.requests if request.tools]
    assert numbers == sorted(numbers)
    assert [n for n in numbers if numbers.count(n) > 1] != []  # the same request, repeated
    for _, items in model.requests:
        assert_sendable(items)
    assert_valid(agent)


def test_a_second_refusal_is_one_clear_sentence():
    model = Small(most=2)
    agent = Agent(model, [look], approval="never")
    result = agent.run_sync("Go.")
    assert result.status == "failed"
    assert "too long for the model" in result.error
    assert_valid(agent)


def test_where_no_summary_can_be_had_old_outputs_go():
    model = Small(most=6, summary=None)
    agent = Agent(model, [look], approval="never")
    result = agent.run_sync("Go.")
    assert result.status == "failed"  # this one counts items, which pruning leaves
    (event,) = of_kind(result, HistoryCompacted)
    assert event.pruned >= 2
    (warning,) = of_kind(result, Warned)
    assert "The line is dead" in warning.message


def test_a_prompt_that_is_too_long_by_itself_says_so():
    model = Small(most=0)
    result = Agent(model, [look], approval="never").run_sync("Go.")
    assert result.status == "failed"
    assert "nothing old enough" in result.error
    assert len(model.requests) == 1
