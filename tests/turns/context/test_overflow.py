"""A server that says the conversation is too long, over real HTTP, on both wires and recorded."""

import json

import pytest

from agent_magics import Agent, tool
from agent_magics.engine.context.summary import INSTRUCTIONS
from agent_magics.models.recordings.format import read_recording
from agent_magics.models.recordings.format import turns_of as recorded_turns_of
from agent_magics.models.recordings.text import is_whole
from agent_magics.protocol.events import HistoryCompacted, ModelRetry, Warned
from tests.support.models.responses_server import Reply, function_call
from tests.support.models.server import ModelServer, chat_events, tool_call
from tests.support.turns import assert_valid, kinds, of_kind

TOO_LONG = {
    "error": {
        "message": "Your input exceeds the context window of this model.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}
MOST = 26_000  # bytes of a request


@tool(mutating=False)
def look(what: str) -> str:
    """Look at something; it is long."""
    return what * 8_000


def refusal() -> Reply:
    return Reply(status=400, document=json.dumps(TOO_LONG).encode())


def is_summary(body) -> bool:
    return INSTRUCTIONS in (body.get("instructions"), body.get("messages", [{}])[0].get("content"))


class Server:
    """Answers with calls until something was summarised, and refuses what is too long.

    Attributes:
        bodies: what was asked, in order, with the size of each in bytes.
    """

    def __init__(self, call, text) -> None:
        self._call, self._text = call, text
        self.bodies = []
        self.summarised = 0

    def __call__(self, body) -> Reply:
        size = len(json.dumps(body))
        self.bodies.append(body)
        if is_summary(body):
            self.summarised += 1
            return self._text("Seen so far: a, b.")
        if size > MOST:
            return refusal()
        looked = len([one for one in self.bodies if not is_summary(one)])
        return self._text("Done.") if self.summarised else self._call(looked)


def responses_call(number: int) -> Reply:
    return Reply([function_call("look", {"what": "abcdefgh"[number]}, f"call_{number}")])


def chat_call(number: int) -> Reply:
    call = tool_call("look", {"what": "abcdefgh"[number]}, f"call_{number}")
    return Reply(events=chat_events(calls=[call]))


WIRES = {
    "responses": (responses_call, Reply),
    "chat": (chat_call, lambda text: Reply(events=chat_events(text))),
}


@pytest.fixture(params=WIRES)
def server(request):
    script = Server(*WIRES[request.param])
    with ModelServer(**{request.param: script}) as server:
        server.script, server.wire = script, request.param
        yield server


def agent_of(server, **options) -> Agent:
    return Agent(
        "m",
        [look],
        base_url=server.base_url,
        api_key="none",
        wire_api=server.wire,
        approval="never",
        **options,
    )


def test_the_conversation_is_shortened_and_the_request_repeated_once(server):
    with agent_of(server) as agent:
        result = agent.run_sync("Look at all of it.")
    assert (result.status, result.text) == ("completed", "Done.")
    assert len(of_kind(result, HistoryCompacted)) == 1
    assert of_kind(result, ModelRetry) == []  # waiting would not have helped
    *_, refused, summary, last = server.script.bodies
    assert is_summary(summary) and "tools" not in summary
    assert len(json.dumps(refused)) > MOST > len(json.dumps(last))
    assert "Look at all of it." in json.dumps(last)
    assert "Seen so far: a, b." in json.dumps(last)
    assert_valid(agent)


def test_a_server_that_refuses_everything_is_told_in_one_sentence():
    with ModelServer(responses=[responses_call(0), responses_call(1), refusal()]) as server:
        server.wire = "responses"
        with agent_of(server) as agent:
            result = agent.run_sync("Go.")
    assert result.status == "failed"
    assert "too long for the model" in result.error
    assert "context window of this model" in result.error  # the provider's own words
    (warning,) = of_kind(result, Warned)
    assert "No summary could be made" in warning.message
    assert "its record is too long for the model, too" in warning.message
    sizes = [len(json.dumps(r.body)) for r in server.requests if is_summary(r.body)]
    assert len(sizes) == 3 and sizes == sorted(sizes, reverse=True)
    assert_valid(agent)


def test_refused_again_after_a_summary_it_is_not_tried_a_third_time():
    def script(body):
        return Reply("Short.") if is_summary(body) else next(replies)

    replies = iter([responses_call(0), responses_call(1), refusal(), refusal()])
    with ModelServer(responses=script) as server:
        server.wire = "responses"
        with agent_of(server) as agent:
            result = agent.run_sync("Go.")
    assert result.status == "failed"
    assert result.error.startswith("Even after its older part was left out: The conversation is")
    assert len(server.requests) == 5
    assert_valid(agent)


def test_a_recording_of_it_plays_again(server, tmp_path):
    file = tmp_path / "r.agent.jsonl"
    with agent_of(server, record=file) as agent:
        recorded = agent.run_sync("Look at all of it.")
    assert recorded.status == "completed"
    asked = len(server.requests)
    with agent_of(server, replay=file, replay_strict=True) as agent:
        for _ in range(2):  # a cell that is run again plays again
            played = agent.run_sync("Look at all of it.")
            assert (played.status, played.text) == ("completed", "Done.")
            assert of_kind(played, Warned) == []
            assert kinds(played)[1:] == kinds(recorded)[1:]
            (summary,) = of_kind(played, HistoryCompacted)
            assert summary.summary == "Seen so far: a, b."
            agent.reset()
    assert len(server.requests) == asked


PROMPTS = ("Look at all of it.", "Go on.")


@pytest.mark.parametrize("first", [[], [refusal()], [refusal(), refusal()]])
def test_a_recording_of_a_turn_that_begins_with_it_comes_to_the_same_conversation(tmp_path, first):
    """The second turn is refused at its first request, and its summary as often as `first` says."""

    def script(body):
        return next(summaries) if is_summary(body) else next(replies)

    def turns_of(agent):
        results = [agent.run_sync(prompt) for prompt in PROMPTS]
        history = agent.session.conversation.history
        return results, len(history.items), len(history.sent)

    file = tmp_path / "r.agent.jsonl"
    summaries = iter([*first, Reply("Seen: a, b.")])
    replies = iter(
        [responses_call(0), responses_call(1), Reply("Seen."), refusal(), Reply("Done.")]
    )
    with ModelServer(responses=script) as server:
        server.wire = "responses"
        with agent_of(server, record=file) as agent:
            recorded, *sizes = turns_of(agent)
        assert [each.text for each in recorded] == ["Seen.", "Done."]
        with agent_of(server, replay=file, replay_strict=True) as agent:
            for _ in range(2):
                played, *found = turns_of(agent)
                assert [each.text for each in played] == ["Seen.", "Done."]
                assert list(map(kinds, played)) == list(map(kinds, recorded))
                assert found == sizes
                agent.reset()
    recorded_turns = recorded_turns_of(read_recording(file).exchanges)
    assert len(recorded_turns) == 3 and all(map(is_whole, recorded_turns))  # none is trimmed


def test_a_turn_that_failed_and_its_cell_run_again_are_two(tmp_path):
    file = tmp_path / "r.agent.jsonl"
    with ModelServer(responses=[refusal(), Reply("Done.")]) as server:
        server.wire = "responses"
        with agent_of(server, record=file) as agent:
            assert [agent.run_sync("Go.").status for _ in range(2)] == ["failed", "completed"]
        with agent_of(server, replay=file) as agent:
            assert agent.run_sync("Go.").text == "Done."
