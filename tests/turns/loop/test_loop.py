"""The loop: request, calls, outputs, request; in which order, and what is not run."""

import asyncio
import threading
from pathlib import Path

import pytest

from agent_magics import Agent, Call, ScriptedModel, ToolContext, tool
from agent_magics.engine.results.run import summarise
from agent_magics.models.base import ItemDone, ResponseDone
from agent_magics.protocol.events import (
    ItemCompleted,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    ToolCallRunning,
    Warned,
)
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    LocalShellCall,
    ToolCallOutput,
    Usage,
    UserMessage,
)
from agent_magics.protocol.ops import StartTurn, Steer, new_turn_id
from tests.support.gates import Gate
from tests.support.turns import (
    PATIENCE,
    StuckModel,
    assert_valid,
    kinds,
    of_kind,
    outputs,
    scripted,
)

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+made\n*** End Patch"


@tool
def note(text: str) -> str:
    """Say it back."""
    return f"noted {text}"


class ItemModel:
    """Gives items and how the response ended; what no script of ours can write."""

    source = "script"

    def __init__(self, *responses):
        self._responses = list(responses)

    async def stream(self, request):
        items, finish = self._responses.pop(0)
        for item in items:
            yield ItemDone(item)
        yield ResponseDone(Usage(10, 5), finish)

    async def close(self):
        pass


def call_item(name, arguments, call_id="c1"):
    return FunctionCall(call_id, name, arguments)


# -- the order of things -------------------------------------------------------------------------


def test_a_turn_without_calls_is_told_in_order():
    result = scripted("Hello.").run_sync("Hi")
    assert result.status == "completed"
    assert result.text == "Hello."
    assert kinds(result) == [
        "SessionConfigured",
        "TurnStarted",
        "TextDelta",
        "ItemCompleted",
        "TokensCounted",
        "TurnCompleted",
    ]


def test_a_conversation_is_introduced_by_the_first_turn_that_has_a_model(tmp_path):
    agent = scripted("Hello.", record=str(tmp_path / "r"), replay=str(tmp_path / "r"))
    assert kinds(agent.run_sync("hi")) == ["TurnFailed"]
    agent.configure(record=None, replay=None)
    assert kinds(agent.run_sync("hi"))[:2] == ["SessionConfigured", "TurnStarted"]


def test_a_call_goes_from_pending_to_running_to_completed_and_its_output_to_the_model(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    agent = scripted(Call("read_file", {"path": "a.txt"}), "Two lines.", tools=["read_file"])
    result = agent.run_sync("Read it.")
    assert kinds(result) == [
        "SessionConfigured",
        "TurnStarted",
        "ItemCompleted",
        "TokensCounted",
        "ToolCallPending",
        "ToolCallRunning",
        "ToolCallCompleted",
        "TextDelta",
        "ItemCompleted",
        "TokensCounted",
        "TurnCompleted",
    ]
    [(call_id, output)] = outputs(agent)
    assert call_id == "call_1"
    assert "one" in output
    assert "two" in output
    assert result.calls[0].arguments == {"path": "a.txt"}
    assert result.calls[0].output == output


def test_events_are_numbered_and_named():
    agent = scripted(Call("note", {"text": "x"}), "Done.", tools=[note], name="ada")
    result = agent.run_sync("Go")
    assert [event.seq for event in result.events] == list(range(1, len(result.events) + 1))
    assert {event.agent for event in result.events} == {"ada"}
    assert len({event.turn_id for event in result.events}) == 1


def test_outputs_go_back_in_call_order_although_they_end_in_another():
    second_done = threading.Event()

    @tool(parallel=True)
    def first() -> str:
        """Wait for the second."""
        assert second_done.wait(PATIENCE)
        return "first"

    @tool(parallel=True)
    def second() -> str:
        """Be quick."""
        return "second"

    @tool(parallel=True)
    async def told() -> str:
        """Be told that the second has ended."""
        return "told"

    def free_the_first(event):
        if isinstance(event, ToolCallCompleted) and event.name == "second":
            second_done.set()

    agent = scripted(
        [Call("first"), Call("second"), Call("told")], "Ok.", tools=[first, second, told]
    )
    op = StartTurn(turn_id=new_turn_id(), content="Go")
    events = asyncio.run(agent.foreground(show=free_the_first).wait(op, agent.turn_config()))
    result = summarise(events)
    ended = [event.name for event in of_kind(result, ToolCallCompleted)]
    assert ended.index("second") < ended.index("first")
    assert [text for _, text in outputs(agent)] == ["first", "second", "told"]


def test_a_call_that_excludes_others_waits_for_them_and_they_for_it(tmp_path):
    gate = Gate(tmp_path / "go")
    script = ": < go; echo before"
    calls = [
        Call("shell", {"command": ["bash", "-c", script]}),
        CustomToolCall("patch", "apply_patch", PATCH),
        Call("shell", {"command": ["cat", "new.txt"]}),
    ]
    agent = scripted(
        calls,
        "Ok.",
        tools=["shell", "apply_patch"],
        sandbox="danger-full-access",
        approval="on-request",
    )
    running = []

    def show(event):
        if isinstance(event, ToolCallRunning):
            running.append(event.name)
            gate.open()

    op = StartTurn(turn_id=new_turn_id(), content="Go")
    result = summarise(asyncio.run(agent.foreground(show=show).wait(op, agent.turn_config())))
    assert [call.success for call in result.calls] == [True, True, True]
    assert running == ["shell", "apply_patch", "shell"]
    life = [
        (type(event).__name__.removeprefix("ToolCall"), event.name)
        for event in result.events
        if isinstance(event, (ToolCallRunning, ToolCallCompleted))
    ]
    assert life == [
        ("Running", "shell"),
        ("Completed", "shell"),
        ("Running", "apply_patch"),
        ("Completed", "apply_patch"),
        ("Running", "shell"),
        ("Completed", "shell"),
    ]
    assert "made" in outputs(agent)[2][1]


def test_sixteen_parallel_sync_tools_run_at_the_same_time():
    barrier = threading.Barrier(16)

    @tool(parallel=True)
    def meet(number: int) -> int:
        """Wait for the other fifteen."""
        barrier.wait(PATIENCE)
        return number

    calls = [Call("meet", {"number": number}) for number in range(16)]
    agent = scripted(calls, "All met.", tools=[meet])
    result = agent.run_sync("Go")
    assert result.status == "completed"
    assert [text for _, text in outputs(agent)] == [str(number) for number in range(16)]


def test_sync_tools_run_on_the_waiting_thread_one_after_the_other():
    threads = []

    @tool
    def where() -> str:
        """Tell."""
        threads.append(threading.get_ident())
        return "here"

    scripted([Call("where"), Call("where")], "Ok.", tools=[where]).run_sync("Go")
    assert threads == [threading.get_ident()] * 2


def test_calls_with_the_same_id_do_not_wait_for_each_other_for_ever():
    calls = [call_item("note", '{"text": "a"}'), call_item("note", '{"text": "b"}')]
    agent = Agent(ItemModel((calls, "completed"), ([AssistantMessage("Ok.")], "completed")), [note])
    result = agent.run_sync("Go")
    assert result.status == "completed"
    assert [call.output for call in result.calls] == ["noted a", "noted b"]


def test_ids_that_are_used_twice_or_left_out_are_made_anew_in_call_and_output():
    calls = [
        call_item("note", '{"text": "a"}'),
        call_item("note", '{"text": "b"}'),
        call_item("note", '{"text": "c"}', "c1_2"),
        call_item("note", '{"text": "d"}', ""),
        call_item("note", '{"text": "e"}', ""),
    ]
    agent = Agent(ItemModel((calls, "completed"), ([AssistantMessage("Ok.")], "completed")), [note])
    result = agent.run_sync("Go")
    assert result.status == "completed"
    told = outputs(agent)
    assert [text for _, text in told] == [f"noted {each}" for each in "abcde"]
    assert [call_id for call_id, _ in told][:2] == ["c1", "c1_2"]
    assert len({call_id for call_id, _ in told} - {""}) == 5
    assert [call.arguments["text"] for call in result.calls] == list("abcde")
    assert_valid(agent)


# -- what is not run -----------------------------------------------------------------------------


@pytest.fixture
def refused():
    """Run one call item and return what the model was answered; the tool must not have run."""

    def refuse(item, tools):
        agent = scripted([item], "Ok.", tools=tools)
        result = agent.run_sync("Go")
        assert result.status == "completed"
        assert not of_kind(result, ToolCallRunning)
        [(_, output)] = outputs(agent)
        assert_valid(agent)
        return output, agent

    return refuse


def test_an_unknown_tool_is_answered_with_the_nearest_names_and_the_list(refused):
    output, _ = refused(Call("functions.readfile", {"path": "a"}), ["read_file", "list_dir"])
    assert "no tool named 'functions.readfile'" in output
    assert "Did you mean read_file?" in output
    assert "Available tools: list_dir, read_file." in output


def test_a_freeform_call_of_a_function_tool_says_how_to_call_it(refused):
    output, agent = refused(CustomToolCall("c1", "note", "hello"), [note])
    assert "not run" in output
    assert "JSON object" in output
    [answer] = [
        i for i in agent.session.conversation.history.items if isinstance(i, ToolCallOutput)
    ]
    assert answer.kind == "custom"


def test_a_native_shell_call_of_an_unknown_tool_is_answered_in_its_own_form(refused):
    output, agent = refused(LocalShellCall("c1", ("ls",)), [note])
    assert "local_shell" in output
    [answer] = [
        i for i in agent.session.conversation.history.items if isinstance(i, ToolCallOutput)
    ]
    assert answer.kind == "local_shell"


@pytest.mark.parametrize("call_id", [None, ""])
def test_a_native_shell_call_without_an_id_is_told_and_is_no_call_in_the_history(call_id):
    calls = [call_item("note", '{"text": "a"}'), LocalShellCall(call_id, ("ls",))]
    agent = scripted(calls, "Ok.", tools=[note])
    result = agent.run_sync("Go")
    assert result.text == "Ok."
    assert outputs(agent) == [("c1", "noted a")]
    told = agent.session.conversation.history.items[-2]
    assert (told.role, "no call_id" in told.content) == ("developer", True)
    assert_valid(agent)


def test_apply_patch_may_be_called_as_a_function(tmp_path):
    agent = scripted(Call("apply_patch", {"input": PATCH}), "Ok.", tools=["apply_patch"])
    assert agent.run_sync("Go").calls[0].success
    assert (tmp_path / "new.txt").read_text(encoding="utf-8") == "made\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ('{"text": "abc', "cut short"),
        ('{"text": "abc"} trailing', "not valid JSON"),
        ('["abc"]', "must be one JSON object"),
        ('{"text": {"a": 1}}', "text: expected a string"),
        ('{"txt": "abc"}', "did you mean 'text'"),
    ],
)
def test_arguments_that_do_not_fit_are_told_and_not_run(refused, arguments, says):
    output, _ = refused(call_item("note", arguments), [note])
    assert says in output


CUT_SHORT = [
    ("length", "output token limit"),
    ("content_filter", "content filter ended"),
    ("incomplete", "before it was complete"),
]


@pytest.mark.parametrize(("finish", "says"), CUT_SHORT)
def test_a_response_that_was_cut_short_runs_none_of_its_calls_and_goes_on(tmp_path, finish, says):
    model = ItemModel(
        (
            [call_item("note", '{"text": "a"}'), CustomToolCall("c2", "apply_patch", PATCH)],
            finish,
        ),
        ([AssistantMessage("Ok.")], "completed"),
    )
    agent = Agent(model, [note, "apply_patch"])
    result = agent.run_sync("Go")
    assert result.status == "completed"
    assert not of_kind(result, ToolCallPending)
    assert not (tmp_path / "new.txt").exists()
    assert len(outputs(agent)) == 2
    assert all("Not run" in output and says in output for _, output in outputs(agent))
    assert_valid(agent)


@pytest.mark.parametrize(("finish", "says"), CUT_SHORT)
def test_an_answer_that_was_cut_short_is_kept_and_told(finish, says):
    agent = Agent(ItemModel(([AssistantMessage("Half an ans")], finish)), [])
    result = agent.run_sync("Go")
    assert result.text == "Half an ans"
    [warning] = of_kind(result, Warned)
    assert says in warning.message


# -- the conversation ----------------------------------------------------------------------------


def test_a_second_run_goes_on_from_the_first():
    model = ScriptedModel([Call("note", {"text": "x"}), "First.", "Second."])
    agent = Agent(model, [note], approval="never")
    agent.run_sync("One")
    assert agent.run_sync("Two").text == "Second."
    seen = model.requests[-1].history.items
    assert [type(item).__name__ for item in seen] == [
        "UserMessage",
        "FunctionCall",
        "ToolCallOutput",
        "AssistantMessage",
        "UserMessage",
    ]
    assert seen[-1] == UserMessage("Two")


def test_reset_forgets_the_conversation():
    model = ScriptedModel(["First.", "Second."])
    agent = Agent(model, [])
    agent.run_sync("One")
    agent.reset()
    agent.run_sync("Two")
    assert model.requests[-1].history.items == (UserMessage("Two"),)


def test_reset_is_refused_while_a_prompt_is_at_work():
    @tool
    def forget() -> str:
        """Reset the agent from inside."""
        agent.reset()
        return "forgot"

    agent = scripted(Call("forget"), "Ok.", tools=[forget])
    result = agent.run_sync("Go")
    assert result.status == "failed"
    assert "at work" in result.error
    assert_valid(agent)
    agent.reset()
    assert list(agent.session.conversation.history.items) == []


@pytest.mark.soak
def test_many_runs_in_a_row_are_never_told_that_the_agent_is_busy():
    agent = scripted(*["Ok."] * 200)
    assert [agent.run_sync("Go").status for _ in range(200)] == ["completed"] * 200


# -- more words while it runs --------------------------------------------------------------------


def test_words_added_during_a_call_are_read_before_the_next_request():
    @tool
    def steer(ctx: ToolContext) -> str:
        """Say more, as a person would."""
        agent.session.submit(Steer(turn_id=ctx.turn_id, content="and in French"))
        return "ok"

    model = ScriptedModel([Call("steer"), "Bonjour."])
    agent = Agent(model, [steer], approval="never")
    agent.run_sync("Greet")
    assert model.requests[1].history.items[-1] == UserMessage("and in French")


def test_words_added_while_the_last_answer_comes_get_an_answer_too():
    class Steered(ItemModel):
        async def stream(self, request):
            if request.number == 1:
                [turn_id] = agent.session.turns.under_way
                agent.session.submit(Steer(turn_id=turn_id, content="and in French"))
            async for event in super().stream(request):
                yield event

    said = [([AssistantMessage(text)], "completed") for text in ("Hello.", "Bonjour.")]
    agent = Agent(Steered(*said), [])
    result = agent.run_sync("Greet")
    assert result.text == "Bonjour."
    assert len(of_kind(result, ItemCompleted)) == 2


def test_words_for_a_turn_that_is_over_do_not_reach_the_next_one():
    model = ScriptedModel(["One.", Call("note", {"text": "x"}), "Two."])
    agent = Agent(model, [note], approval="never")
    turn_id = agent.run_sync("Go").events[0].turn_id
    agent.session.submit(Steer(turn_id=turn_id, content="too late"))
    agent.run_sync("Go")
    assert UserMessage("too late") not in model.requests[-1].history.items


# -- one turn at a time --------------------------------------------------------------------------


def test_an_agent_at_work_refuses_a_second_prompt_and_finishes_the_first():
    refusals = []

    @tool
    def again() -> str:
        """Start a second run inside the first."""
        refusals.append(agent.run_sync("Me too"))
        return "tried"

    agent = scripted(Call("again"), "Ok.", tools=[again])
    assert agent.run_sync("Go").text == "Ok."
    [refusal] = refusals
    assert refusal.status == "failed"
    assert "at work on another prompt" in refusal.error


def test_of_two_runs_started_at_once_one_is_refused():
    async def both():
        tasks = [asyncio.create_task(agent.run(prompt)) for prompt in ("One", "Two")]
        done, at_work = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in at_work:
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)
        return [task.result() for task in done]

    agent = Agent(StuckModel(), [])
    [refused] = asyncio.run(both())
    assert "at work on another prompt" in refused.error
    assert (
        len([i for i in agent.session.conversation.history.items if isinstance(i, UserMessage)])
        <= 1
    )


def test_a_call_made_inside_a_turn_leaves_the_turn_s_open_calls_alone():
    @tool
    def inner() -> str:
        """Do the inner work."""
        return "inner"

    @tool
    def outer() -> str:
        """Call another tool."""
        return agent.call_sync("inner").text

    agent = scripted([Call("outer"), Call("inner")], "Ok.", tools=[outer, inner])
    assert agent.run_sync("Go").status == "completed"
    assert outputs(agent) == [("call_1", "inner"), ("call_2", "inner")]


def test_a_bug_in_a_model_ends_the_turn_with_one_sentence(caplog: pytest.LogCaptureFixture):
    class Broken:
        source = "script"

        async def stream(self, request):
            raise ZeroDivisionError("oops")
            yield

        async def close(self):
            pass

    agent = Agent(Broken(), [])
    result = agent.run_sync("Go")
    assert result.status == "failed"
    assert "ZeroDivisionError: oops" in result.error
    assert "Traceback" in caplog.text
    assert not agent.session.busy


def test_whatever_a_model_raises_ends_the_turn_and_the_engine_lives():
    class Exiting(ScriptedModel):
        async def stream(self, request):
            raise SystemExit(3)
            yield

    agent = Agent(Exiting([]), [])
    result = agent.run_sync("Go")
    assert result.status == "failed"
    assert "SystemExit" in result.error
    assert not agent.session.busy


@pytest.mark.soak
def test_seventy_parallel_calls_that_each_make_another_do_not_lock_each_other_out():
    barrier = threading.Barrier(70)

    @tool(parallel=True)
    def outer() -> str:
        """Call another tool when all are here."""
        barrier.wait(PATIENCE)
        return agent.call_sync("inner").text

    @tool(parallel=True)
    def inner() -> str:
        """Answer."""
        return "inner"

    agent = scripted([Call("outer")] * 70, "Ok.", tools=[outer, inner])
    result = agent.run_sync("Go")
    assert [call.output for call in result.calls if call.name == "outer"] == ["inner"] * 70


def test_tools_see_the_folder_of_the_agent_not_of_the_process(tmp_path: Path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.txt").write_text("here", encoding="utf-8")
    agent = scripted(Call("read_file", {"path": "a.txt"}), "Ok.", tools=["read_file"], cwd="below")
    assert agent.run_sync("Go").calls[0].success


def test_a_failed_call_is_told_and_the_loop_goes_on():
    agent = scripted(Call("read_file", {"path": "nothing.txt"}), "Not there.", tools=["read_file"])
    result = agent.run_sync("Go")
    assert result.text == "Not there."
    [failed] = of_kind(result, ToolCallFailed)
    assert "nothing.txt" in failed.output
