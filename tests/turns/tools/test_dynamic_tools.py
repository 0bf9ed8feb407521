"""Tools that are data: answered by a callback, or by a client through events and ops."""

import asyncio
import json

import pytest

from agent_magics import Call, DynamicToolSpec, FatalError
from agent_magics.dispatch.handlers.dynamic import CLIENT_LIMIT, DynamicTool
from agent_magics.protocol import codec
from agent_magics.protocol.events import (
    ApprovalRequested,
    DynamicToolCallRequest,
    ToolCallCompleted,
    Warned,
)
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.ops import DynamicToolResponse, RegisterTools
from tests.support.turns import assert_valid, of_kind, scripted

SPEC = DynamicToolSpec(
    "ticket", "Make a ticket.", {"properties": {"title": {"minLength": 1}}, "required": ["title"]}
)
PIXEL = "data:image/png;base64,AAAA"
CALL = Call("ticket", {"title": "Leak", "urgent": True})


class Client:
    """An outside client: hears the events of a run and answers by ops."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.agent = None

    def on_event(self, event):
        if isinstance(event, DynamicToolCallRequest):
            self.asked.append((event.tool, event.arguments))
            for answer in self.answers:
                self.agent.session.submit(answer(event.call_id))


def with_client(*answers, turns=(CALL, "Done."), timeout=None, **options):
    client = Client(*answers)
    agent = client.agent = scripted(*turns, hooks=[client], **options)
    agent.register(SPEC, timeout=timeout)
    return agent, client


def text(words, success=True):
    return lambda call_id: DynamicToolResponse(
        call_id=call_id, content_items=(InputText(words),), success=success
    )


# -- how it is offered -----------------------------------------------------------------------------


def test_it_is_offered_with_a_clean_schema_and_never_strict():
    agent, _ = with_client(turns=["Done."])
    agent.run_sync("Go.")
    spec = agent._models.given.requests[0].tools[0].spec
    assert (spec.name, spec.description, spec.strict) == ("ticket", "Make a ticket.", False)
    assert spec.strict_reason
    assert spec.parameters == {
        "type": "object",
        "properties": {"title": {"type": "string", "description": "(minLength: 1)"}},
        "required": ["title"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("name", ["", "a b", "é", "a" * 65, None, 5])
def test_a_name_that_no_provider_takes_is_refused(name):
    with pytest.raises(FatalError, match="cannot be a tool's name"):
        scripted().register(DynamicToolSpec(name, "D."))


def test_a_callback_must_be_a_function():
    with pytest.raises(FatalError, match="is no function"):
        scripted().register(SPEC, "callback")


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "5", True])
def test_a_timeout_is_a_time(timeout):
    with pytest.raises(FatalError, match=f"Tool 'ticket': timeout={timeout!r} "):
        scripted().register(SPEC, timeout=timeout)


@pytest.mark.parametrize(
    ("approval", "asks"),
    [("untrusted", True), ("on-request", True), ("on-failure", False), ("never", False)],
)
def test_it_always_counts_as_changing_something(approval, asks):
    agent = scripted(CALL, "Done.", approval=approval, on_question=lambda question: "approve")
    agent.register(SPEC, lambda arguments: "made")
    result = agent.run_sync("Go.")
    assert bool(of_kind(result, ApprovalRequested)) is asks
    assert result.calls[0].output == "made"


def test_a_lasting_approval_binds_to_the_arguments():
    asked = []

    def answer(question):
        asked.append(json.loads(question.arguments)["title"])
        return "approve_for_session"

    calls = [Call("ticket", {"title": title}) for title in ("a", "a", "b")]
    agent = scripted(*calls, "Done.", approval="on-request", on_question=answer)
    agent.register(SPEC, lambda arguments: "made")
    agent.run_sync("Go.")
    assert asked == ["a", "b"]


# -- answered by a callback ------------------------------------------------------------------------


async def answer_later(arguments):
    await asyncio.sleep(0)
    return arguments["title"]


class Callable:
    def __call__(self, arguments):
        return arguments["title"]

    async def later(self, arguments):
        return arguments["title"]


@pytest.mark.parametrize(
    "callback",
    [
        lambda arguments: arguments["title"],
        answer_later,
        Callable(),
        Callable().later,
        lambda arguments, *, more=1: arguments["title"],
    ],
)
def test_a_callback_answers(callback):
    agent = scripted()
    agent.register(SPEC, callback)
    assert agent.call_sync("ticket", {"title": "Leak"}).text == "Leak"


def test_a_callback_is_left_as_it_was_and_its_errors_name_its_line():
    def callback(arguments):
        raise KeyError("no such queue")

    agent = scripted()
    agent.register(SPEC, callback)
    output = agent.call_sync("ticket", {"title": "a"})
    assert not output.success
    assert "ticket raised KeyError: 'no such queue'" in output.text
    assert 'raise KeyError("no such queue")' in output.text
    assert not hasattr(callback, "tool_options")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "Missing: title. Its parameters are: title."),
        ("[1]", "no JSON object"),
        ('{"title": ', "no JSON object"),
    ],
)
def test_arguments_that_do_not_fit_are_told(arguments, words):
    agent = scripted(Call("ticket", arguments), "Done.")
    agent.register(SPEC, lambda arguments: "made")
    result = agent.run_sync("Go.")
    assert not result.calls[0].success
    assert words in result.calls[0].output
    assert_valid(agent)


def test_freeform_text_is_refused_with_how_to_call():
    agent = scripted()
    agent.register(SPEC, lambda arguments: "made")
    assert "as a function" in agent.call_sync("ticket", "text").text


# -- answered by a client --------------------------------------------------------------------------


def test_a_client_hears_of_the_call_and_answers():
    agent, client = with_client(text("made 7"))
    result = agent.run_sync("Go.")
    assert client.asked == [("ticket", {"title": "Leak", "urgent": True})]
    assert (result.calls[0].output, result.calls[0].success) == ("made 7", True)


def test_a_client_may_say_that_it_failed():
    agent, _ = with_client(text("no such project", success=False))
    call = agent.run_sync("Go.").calls[0]
    assert (call.output, call.success) == ("no such project", False)


@pytest.mark.parametrize("sequence", [tuple, list])
def test_a_client_may_answer_with_pictures(sequence):
    items = sequence((InputText("see"), InputImage(PIXEL)))
    agent, _ = with_client(lambda i: DynamicToolResponse(call_id=i, content_items=items))
    result = agent.run_sync("Go.")
    assert of_kind(result, ToolCallCompleted)[0].output == tuple(items)


@pytest.mark.timeout(20)
def test_an_answer_of_another_type_is_a_failure():
    agent, _ = with_client(lambda i: DynamicToolResponse(call_id=i, content_items=5))
    call = agent.run_sync("Go.").calls[0]
    assert "was of another type than its fields have: content_items" in call.output
    assert not call.success


def test_a_long_answer_is_cut():
    agent, _ = with_client(text("x" * 5_000), output_budget=200)
    assert len(agent.run_sync("Go.").calls[0].output) < 400


@pytest.mark.parametrize("wrong", ["nobody", "", "call_1 "])
def test_an_answer_to_an_unknown_call_is_dropped_and_told(wrong):
    agent, _ = with_client(lambda i: text("stray")(wrong), text("right"))
    result = agent.run_sync("Go.")
    assert result.calls[0].output == "right"
    warned = [w.message for w in of_kind(result, Warned)]
    assert f"An answer to the unknown call {wrong!r} was dropped." in warned


def test_a_second_answer_changes_nothing():
    agent, _ = with_client(text("first"), text("second"))
    result = agent.run_sync("Go.")
    assert result.calls[0].output == "first"
    assert agent._models.given.requests[1].history.items[-1].output == "first"


def test_a_client_that_never_answers_costs_the_time_it_was_given():
    agent, client = with_client(timeout=0.05)
    call = agent.run_sync("Go.").calls[0]
    assert not call.success
    assert call.output == "ticket was stopped: it took longer than 0.05 s."
    assert client.asked
    assert DynamicTool(SPEC).tool_options.timeout == CLIENT_LIMIT
    assert DynamicTool(SPEC, print).tool_options.timeout is None


def test_a_turn_that_waits_for_a_client_can_be_interrupted():
    async def main():
        waiting = asyncio.Event()

        class Quiet:
            def on_event(self, event):
                if isinstance(event, DynamicToolCallRequest):
                    waiting.set()

        agent = scripted(CALL, hooks=[Quiet()])
        agent.register(SPEC)
        running = asyncio.create_task(agent.run("Go."))
        await waiting.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return agent

    assert_valid(asyncio.run(main()))


def test_a_client_answers_several_calls_each_by_its_id():
    class Backwards(Client):
        def on_event(self, event):
            if isinstance(event, DynamicToolCallRequest):
                words = event.arguments["title"]
                self.agent.session.submit(text(words)(event.call_id))

    client = Backwards()
    calls = [Call("ticket", {"title": f"t{n}"}) for n in range(5)]
    agent = client.agent = scripted(calls, "Done.", hooks=[client])
    agent.register(SPEC)
    assert [c.output for c in agent.run_sync("Go.").calls] == [f"t{n}" for n in range(5)]


def test_by_hand_only_a_callback_answers():
    assert DynamicTool(SPEC, lambda arguments: arguments["title"])(title="a") == "a"
    with pytest.raises(RuntimeError, match="answered by a client"):
        DynamicTool(SPEC)(title="a")


def test_ops_go_to_json_and_back():
    ops = [
        RegisterTools(add=(SPEC,), remove=("other",)),
        DynamicToolResponse(call_id="c", content_items=(InputText("a"), InputImage(PIXEL))),
    ]
    for op in ops:
        assert codec.from_json(json.loads(json.dumps(codec.to_json(op)))) == op


def test_a_client_tool_of_a_taken_name_is_told():
    agent = scripted(lambda request: taken(), "Done.")
    agent.register(SPEC, lambda arguments: "ours")

    def taken():
        agent.session.submit(RegisterTools(add=(SPEC,), remove=("nothing",)))
        return Call("ticket", {"title": "a"})

    result = agent.run_sync("Go.")
    warned = " ".join(w.message for w in of_kind(result, Warned))
    assert "There is no registered tool named 'nothing' to remove." in warned
    assert "A client's tool was not registered: Two tools are named 'ticket'" in warned
    assert f"{__file__}:" in warned
    assert result.calls[0].output == "ours"
