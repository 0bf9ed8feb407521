"""Hooks: what they see, what they may change, and that one that raises stops the call."""

import asyncio
import threading
from dataclasses import replace

import numpy
import pandas
import pytest

from agent_magics import Abort, Block, Call, FatalError, tool
from agent_magics.dispatch.hooks import HookMethod, Hooks, read_hooks
from agent_magics.engine.foreground.event_hooks import EventWatch
from agent_magics.protocol.events import (
    ApprovalRequested,
    ToolCallCompleted,
    TurnCompleted,
    Warned,
)
from agent_magics.protocol.tools import ToolOutput
from tests.support.turns import PATIENCE, kinds, of_kind, scripted

RAN: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    RAN.clear()


@tool(parallel=True)
def double(number: int, times: int = 1) -> int:
    """Double a number."""
    RAN.append(number)
    return 2 * number * times


class Hook:
    """A hook of one method, given as a function of what it is handed."""

    def __init__(self, moment, answer):
        setattr(self, moment, answer)


def one_call(*hooks, arguments=None, approval="never", **options):
    arguments = {"number": 1} if arguments is None else arguments
    agent = scripted(
        Call("double", arguments),
        "Done.",
        tools=[double],
        approval=approval,
        hooks=hooks,
        **options,
    )
    return agent.run_sync("Go.")


# -- before a call ---------------------------------------------------------------------------------


def test_a_hook_sees_the_call_as_the_model_made_it():
    seen = []
    result = one_call(Hook("before_tool", lambda call: seen.append(call)))
    assert [(c.tool, c.arguments, c.parent_call_id) for c in seen] == [
        ("double", {"number": 1}, None)
    ]
    assert seen[0].context.call_id == seen[0].call_id == result.calls[0].call_id
    assert result.calls[0].output == "2"


@pytest.mark.parametrize(
    "change",
    [
        lambda call: {**call.arguments, "number": 5},
        lambda call: replace(call, arguments={"number": 5}),
        lambda call: call.arguments.update(number=5) or call,
    ],
)
def test_changed_arguments_are_what_runs_and_are_told_without_the_values(change):
    result = one_call(Hook("before_tool", change))
    assert result.calls[0].output == (
        "The hook Hook.before_tool changed arguments of this call (number).\n10"
    )


def test_a_copy_that_is_changed_and_not_returned_changes_nothing():
    result = one_call(Hook("before_tool", lambda call: call.arguments.update(number=5)))
    assert result.calls[0].output == "2"


def test_changed_arguments_are_checked_like_any():
    result = one_call(Hook("before_tool", lambda call: {"number": "many"}))
    assert not result.calls[0].success
    assert "the hook Hook.before_tool changed its arguments, and they do not fit" in (
        result.calls[0].output
    )
    assert "number: expected an integer" in result.calls[0].output
    assert RAN == []


def test_hooks_are_asked_in_order_each_with_what_the_one_before_made():
    seen = []

    def add(call):
        seen.append(call.arguments["number"])
        return {"number": call.arguments["number"] + 10}

    result = one_call(*[Hook("before_tool", add)] * 3)
    assert seen == [1, 11, 21]
    assert RAN == [31]
    assert result.calls[0].output.endswith("62")


def test_a_blocked_call_does_not_run_and_asks_nothing():
    later = []
    result = one_call(
        Hook("before_tool", lambda call: Block("not on Sundays")),
        Hook("before_tool", later.append),
        approval="untrusted",
        on_question=lambda question: "approve",
    )
    assert result.calls[0].output == (
        "double was not run: the hook Hook.before_tool blocked it: not on Sundays"
    )
    assert (RAN, later, of_kind(result, ApprovalRequested)) == ([], [], [])
    assert result.status == "completed"


class Incomparable:
    """Cannot be compared with anything."""

    def __eq__(self, other):
        raise LookupError

    __hash__ = None

    def __repr__(self):
        return "<no words>"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (numpy.array([1, 2]), "array"),
        (pandas.DataFrame({"a": [1, 2]}), "a"),
        (Incomparable(), "<no words>"),
        (0, "0"),
        ("", ""),
    ],
)
def test_an_output_may_be_replaced_by_anything(answer, shown):
    result = one_call(Hook("after_tool", lambda call, output: answer))
    assert result.status == "completed"
    assert shown in result.calls[0].output != "2"


@pytest.mark.parametrize("moment", ["before_tool", "after_tool", "before_model"])
def test_abort_ends_the_turn(moment):
    result = one_call(Hook(moment, lambda *_: Abort("enough")))
    assert result.status == "aborted"
    assert f"the hook Hook.{moment} stopped it: enough" in str(result.events[-1].reason)
    assert bool(RAN) is (moment == "after_tool")


def test_a_hook_that_raises_blocks_the_call_and_is_named():
    def broken(call):
        raise ValueError("no such rule")

    result = one_call(Hook("before_tool", broken))
    assert result.calls[0].output == (
        "double was not run: the hook Hook.before_tool raised ValueError: no such rule."
    )
    assert RAN == []


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), StopIteration()])
def test_no_error_of_a_hook_gets_past_it(error):
    def broken(call):
        raise error

    result = one_call(Hook("before_tool", broken))
    assert result.status == "completed"
    assert f"{type(error).__name__}" in result.calls[0].output
    assert RAN == []


@pytest.mark.parametrize("answer", [5, True, [1], object(), {"number": {1, 2}}, {"a": object()}])
def test_what_a_hook_may_not_return_blocks_the_call(answer):
    result = one_call(Hook("before_tool", lambda call: answer))
    assert not result.calls[0].success
    assert "the hook Hook.before_tool returned" in result.calls[0].output
    assert RAN == []


def test_a_fatal_error_of_a_hook_ends_the_turn():
    def broken(call):
        raise FatalError("The audit log is full.")

    result = one_call(Hook("before_tool", broken))
    assert (result.status, result.error) == ("failed", "The audit log is full.")


def test_what_is_asked_is_what_the_hook_made_of_the_call():
    asked = []

    def answer(question):
        asked.append(question.arguments)
        return "approve"

    one_call(
        Hook("before_tool", lambda call: {"number": 7}), approval="untrusted", on_question=answer
    )
    assert asked == ['{"number": 7}']
    assert RAN == [7]


def test_a_lasting_approval_does_not_cover_what_a_hook_changes():
    numbers = iter([1, 2])
    asked = []

    def answer(question):
        asked.append(question.arguments)
        return "approve_for_session"

    agent = scripted(
        Call("double", {"number": 1}),
        Call("double", {"number": 1}),
        "Done.",
        tools=[double],
        approval="untrusted",
        on_question=answer,
        hooks=[Hook("before_tool", lambda call: {"number": next(numbers)})],
    )
    agent.run_sync("Go.")
    assert asked == ['{"number": 1}', '{"number": 2}']


def test_what_a_person_edits_passes_the_hooks_and_is_asked_again_if_they_change_it():
    class Edit:
        decision, feedback, edited_arguments = "approve", "", '{"number": 50}'

    asked = []

    def answer(question):
        asked.append(question.arguments)
        return Edit() if len(asked) == 1 else "approve"

    def cap(call):
        return {"number": min(call.arguments["number"], 9)}

    result = one_call(Hook("before_tool", cap), approval="untrusted", on_question=answer)
    assert asked == ['{"number": 1}', '{"number": 9}']
    assert RAN == [9]
    assert "The person changed the arguments" in result.calls[0].output


def test_freeform_text_is_text():
    @tool(freeform=("lark", "start: /.+/"), name="patch")
    def patch(text: str) -> str:
        """Patch."""
        return f"patched {text}"

    agent = scripted(tools=[patch], hooks=[Hook("before_tool", lambda c: c.arguments.upper())])
    output = agent.call_sync("patch", "abc")
    assert output.text.endswith("patched ABC")
    assert "changed the text of this call" in output.text


# -- after a call ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "output", "success"),
    [
        (None, "2", True),
        ("other", "other", True),
        ({"a": 1}, '{"a":1}', True),
        (ToolOutput("bad", success=False), "bad", False),
        (
            Block("secret"),
            "double has run, but there is no output: the hook Hook.after_tool withholds it: "
            "secret.",
            False,
        ),
    ],
)
def test_an_output_may_be_replaced(answer, output, success):
    result = one_call(Hook("after_tool", lambda call, given: answer))
    assert (result.calls[0].output, result.calls[0].success) == (output, success)


def test_a_hook_sees_failures_too_and_they_stay_failures():
    @tool(parallel=True)
    def fails() -> None:
        """Fail."""
        raise ValueError("no")

    seen = []

    def look(call, output):
        seen.append((output.success, output.text))
        return "told otherwise"

    agent = scripted(tools=[fails], hooks=[Hook("after_tool", look)])
    output = agent.call_sync("fails")
    assert [success for success, _ in seen] == [False]
    assert "fails raised ValueError: no" in seen[0][1]
    assert (output.text, output.success) == ("told otherwise", False)


def test_an_output_is_withheld_where_a_hook_raises():
    def broken(call, output):
        raise RuntimeError("cannot judge")

    result = one_call(Hook("after_tool", broken))
    assert not result.calls[0].success
    assert "the hook Hook.after_tool raised RuntimeError: cannot judge" in result.calls[0].output


def test_a_replaced_output_is_cut_to_the_budget():
    result = one_call(Hook("after_tool", lambda call, output: "x" * 5_000), output_budget=200)
    assert len(result.calls[0].output) < 400


# -- where hooks run -------------------------------------------------------------------------------


def test_an_async_hook_runs_on_the_callers_loop_and_a_plain_one_does_not_block_it():
    places = []

    class Places:
        async def before_tool(self, call):
            places.append(asyncio.get_running_loop())

        def after_tool(self, call, output):
            places.append(threading.current_thread())

    async def main():
        agent = scripted(Call("double", {"number": 1}), "Done.", tools=[double], hooks=[Places()])
        result = await agent.run("Go.")
        return result, asyncio.get_running_loop(), threading.current_thread()

    result, loop, thread = asyncio.run(main())
    assert result.status == "completed"
    assert places[0] is loop
    assert places[1] is not thread


def wrapped(method):
    """Return a plain method around an async one, as many decorators do."""
    return lambda *given: method(*given)


@pytest.mark.parametrize("around", [lambda method: method, wrapped], ids=["async", "wrapped"])
def test_a_hook_may_be_async_also_within_a_plain_one(around):
    loops = []

    async def before_model(request):
        loops.append(asyncio.get_running_loop())

    async def before_tool(call):
        loops.append(asyncio.get_running_loop())
        return {"number": 5}

    async def after_tool(call, output):
        loops.append(asyncio.get_running_loop())
        return f"{output.text}!"

    methods = {"before_model": before_model, "before_tool": before_tool, "after_tool": after_tool}
    hooks = [Hook(moment, around(method)) for moment, method in methods.items()]

    async def main():
        agent = scripted(Call("double", {"number": 1}), "Done.", tools=[double], hooks=hooks)
        return await agent.run("Go."), asyncio.get_running_loop()

    result, loop = asyncio.run(main())
    assert (result.status, result.calls[0].output[-3:], RAN) == ("completed", "10!", [5])
    assert loops == [loop] * 4


def test_a_hook_that_hangs_can_be_interrupted():
    reached, free = threading.Event(), threading.Event()

    def hang(call):
        reached.set()
        free.wait(PATIENCE)

    async def main():
        agent = scripted(
            Call("double", {"number": 1}), tools=[double], hooks=[Hook("before_tool", hang)]
        )
        running = asyncio.create_task(agent.run("Go."))
        assert await asyncio.to_thread(reached.wait, PATIENCE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        free.set()

    asyncio.run(main())
    assert RAN == []


def test_nested_calls_pass_the_hooks():
    seen = []
    agent = scripted(
        Call("batch", {"calls": [{"tool": "double", "arguments": {"number": 3}}]}),
        "Done.",
        tools=["batch", double],
        hooks=[Hook("before_tool", lambda call: seen.append((call.tool, call.parent_call_id)))],
    )
    agent.run_sync("Go.")
    assert seen == [("batch", None), ("double", "call_1")]


# -- before the model ------------------------------------------------------------------------------


def test_a_request_may_be_changed():
    def brief(request):
        return replace(request, instructions="Be brief.")

    agent = scripted("Done.", hooks=[Hook("before_model", brief)])
    agent.run_sync("Go.")
    assert agent._models.given.requests[0].instructions == "Be brief."


def test_a_hook_before_the_model_that_raises_or_errs_is_named_and_ends_the_turn():
    def broken(request):
        raise ValueError("no")

    result = scripted("Done.", hooks=[Hook("before_model", broken)]).run_sync("Go.")
    assert result.error == (
        "The model was not asked: the hook Hook.before_model raised ValueError: no."
    )
    result = scripted("Done.", hooks=[Hook("before_model", lambda request: 5)]).run_sync("Go.")
    assert "the hook Hook.before_model returned int" in result.error


# -- events ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_every_event_is_seen_in_order(is_async, blocks):
    seen = []

    class Watch:
        if is_async:

            async def on_event(self, event):
                await asyncio.sleep(0)
                seen.append(type(event).__name__)

        else:

            def on_event(self, event):
                seen.append(type(event).__name__)

    agent = scripted(Call("double", {"number": 1}), "Done.", tools=[double], hooks=[Watch()])

    async def main():
        return agent.run_sync("Go.") if blocks else await agent.run("Go.")

    result = asyncio.run(main())
    assert seen == kinds(result)
    assert seen[-1] == "TurnCompleted"


def test_a_watching_hook_that_raises_is_told_once_and_let_go():
    calls = []

    def broken(event):
        calls.append(event)
        raise ValueError("no")

    result = one_call(Hook("on_event", broken))
    assert result.status == "completed"
    warnings = [w.message for w in of_kind(result, Warned)]
    assert warnings == [
        "The hook Hook.on_event raised ValueError: no. It is not called again in this run."
    ]
    assert len(calls) == 1


def test_an_async_watcher_that_raises_is_told_too():
    async def main():
        told = []

        async def broken(event):
            raise ValueError("no")

        watch = EventWatch([HookMethod("H.on_event", broken)], told.append)
        watch.see(TurnCompleted(text=""), loop_is_free=True)
        await watch.settle()
        assert told == [
            "The hook H.on_event raised ValueError: no. It is not called again in this run."
        ]

    asyncio.run(main())


# -- what is no hook -------------------------------------------------------------------------------


@pytest.mark.parametrize("hooks", [[object()], [5], [Hook], "abc", 5, {"a": 1}, [Hook("other", 1)]])
def test_what_is_no_hook_is_refused(hooks):
    with pytest.raises(FatalError, match="hooks="):
        scripted(hooks=hooks)


def test_no_hooks_are_no_object():
    assert read_hooks(()) is None
    assert read_hooks([]) is None
    assert isinstance(read_hooks([Hook("on_event", print)]), Hooks)


def test_without_hooks_nothing_is_changed():
    result = one_call()
    assert of_kind(result, ToolCallCompleted)[0].output == "2"
