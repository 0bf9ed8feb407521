"""Where a function runs, and what becomes of what it gives back or raises."""

import asyncio
import functools
import gc
import inspect
import json
import threading
from pathlib import Path

import pytest

from agent_magics.approval.actions import Action, ActionKind
from agent_magics.dispatch.context import ToolContext, TurnContext, status_of
from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.config import ApprovalPolicy, RunConfig
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import ToolCallUpdated
from agent_magics.protocol.tools import CustomPayload, FunctionPayload, McpPayload, ToolCall
from tests.support.turns import PATIENCE


class Turn:
    """A turn that remembers what it was asked to do on the main thread, and its events."""

    def __init__(self, main_thread=True, **config):
        self.sent, self.on_main = [], []
        self.context = TurnContext(
            session_id="s",
            turn_id="t",
            agent="a",
            config=RunConfig(cwd=Path.cwd(), **config),
            env={},
            emit=lambda kind, **fields: self.sent.append((kind, fields)),
            ask=None,
            call=None,
            validate_path=lambda path, mode: Path(f"{mode}:{path}"),
            messages=tuple,
            main_thread=self.main_thread if main_thread else None,
        )

    async def main_thread(self, kind, call_id, name, run):
        self.on_main.append((kind, call_id, name))
        value = run()
        return await value if kind == "async" else value


def handle(fn, arguments="{}", turn=None):
    turn = turn or Turn()
    handler = FunctionToolHandler(fn)
    call = ToolCall(fn.tool_options.name, "c", FunctionPayload(arguments))
    invocation = handler.prepare(call, ToolContext(turn.context, "c", call.tool_name))
    return asyncio.run(handler.handle(invocation))


def where() -> str:
    """Tell the thread."""
    return threading.current_thread().name


async def where_async() -> str:
    """Tell the thread."""
    return threading.current_thread().name


def fresh(fn, **options):
    """Return a copy of `fn` as a tool, since @tool marks the function itself."""
    copy = type(fn)(fn.__code__, fn.__globals__, fn.__name__)
    copy.__doc__, copy.__annotations__ = fn.__doc__, fn.__annotations__
    return tool(**options)(copy)


def test_the_person_s_sync_function_runs_on_the_main_thread():
    turn = Turn()
    handle(fresh(where), turn=turn)
    assert turn.on_main == [("sync", "c", "where")]


def test_a_parallel_one_runs_on_our_own_pool():
    turn = Turn()
    assert handle(fresh(where, parallel=True), turn=turn).text.startswith("agent-tool")
    assert turn.on_main == []


def test_an_inline_one_runs_where_the_loop_runs():
    output = handle(fresh(where, inline=True))
    assert output.text == threading.current_thread().name


def test_an_async_one_runs_on_the_caller_s_loop():
    turn = Turn()
    handle(fresh(where_async), turn=turn)
    assert turn.on_main == [("async", "c", "where_async")]


def test_where_nobody_waits_threads_and_this_loop_do_it():
    assert handle(fresh(where), turn=Turn(main_thread=False)).text.startswith("agent-tool")
    output = handle(fresh(where_async), turn=Turn(main_thread=False))
    assert output.text == threading.current_thread().name


def test_an_error_names_the_line_of_the_tool_that_raised_it():
    @tool(inline=True)
    def divide(a: int) -> float:
        """Divide."""
        return a / 0  # the line

    with pytest.raises(
        RespondToModel, match="divide raised ZeroDivisionError: division by zero"
    ) as e:
        handle(divide, '{"a": 1}')
    assert "return a / 0  # the line" in str(e.value)


class _Compiled:
    """What compilers make of a function: no function of Python, and without its code."""

    def __init__(self, fn):
        self._fn, self.__name__, self.__doc__ = fn, fn.__name__, fn.__doc__
        self.__signature__ = inspect.signature(fn)

    def __get__(self, holder, kind=None):
        return self

    def __call__(self, *args, **kwargs):
        return self._fn(*args, **kwargs)


@pytest.mark.parametrize(
    ("around", "names_line"),
    [(functools.cache, True), (_Compiled, False)],
    ids=["cached", "compiled"],
)
def test_an_error_is_told_however_the_function_is_wrapped(around, names_line):
    def divide(a: int) -> float:
        """Divide."""
        return a / 0  # the line

    with pytest.raises(
        RespondToModel, match="divide raised ZeroDivisionError: division by zero"
    ) as e:
        handle(tool(around(divide)), '{"a": 1}')
    assert ("return a / 0  # the line" in str(e.value)) is names_line


def test_an_error_of_what_wraps_a_function_is_told():
    @tool
    @functools.cache
    def total(numbers: list[int]) -> int:
        """Add."""
        return sum(numbers)

    with pytest.raises(RespondToModel, match="total raised TypeError: unhashable type"):
        handle(total, '{"numbers": [1]}')


class _Silent(Exception):
    def __str__(self):
        raise SystemExit


class _Nameless(type):
    @property
    def __name__(cls):
        raise RuntimeError


class _Anonymous(Exception, metaclass=_Nameless):
    pass


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_Silent(), "hostile raised _Silent: <its message raised SystemExit>"),
        (_Anonymous("no name"), "hostile raised _Anonymous: no name"),
        (ValueError("x" * 1_000_000), "hostile raised ValueError: xxx"),
        (ValueError(ValueError(_Silent())), "hostile raised ValueError: "),
    ],
    ids=["silent", "anonymous", "huge", "nested"],
)
def test_an_error_is_told_whatever_its_class_does(error, told):
    @tool(inline=True)
    def hostile() -> str:
        """Fail."""
        raise error

    with pytest.raises(RespondToModel) as e:
        handle(hostile)
    assert str(e.value).startswith(told)
    assert len(str(e.value)) < 12_000


def test_results_become_text_within_the_budget():
    @tool(inline=True)
    def long() -> str:
        """Be long."""
        return "x" * 5000

    output = handle(long, turn=Turn(output_budget=100))
    assert len(output.details["output"]) < 200
    assert "characters left out" in output.text


@pytest.mark.parametrize("options", [{}, {"parallel": True}, {"inline": True}])
def test_a_generator_s_news_are_shown_and_its_end_is_the_result(options):
    @tool(**options)
    def steps():
        """Go."""
        yield 0.5
        yield "half"
        yield {"rows": 1}
        yield [1, 2]

    turn = Turn()
    assert json.loads(handle(steps, turn=turn).text) == [1, 2]
    news = [
        (fields["progress"], fields["title"], fields["metadata"])
        for kind, fields in turn.sent
        if kind is ToolCallUpdated
    ]
    assert news == [(0.5, None, {}), (None, "half", {}), (None, None, {"rows": 1})]


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_a_share_that_is_no_number_is_not_shown(share):
    @tool
    def steps():
        """Go."""
        yield share
        return "done"

    turn = Turn()
    assert handle(steps, turn=turn).text == "done"
    assert all(fields["progress"] is None for kind, fields in turn.sent if kind is ToolCallUpdated)


def test_a_generator_stops_at_its_next_step_when_the_turn_is_over():
    closed = []

    @tool(inline=True)
    def steps(ctx: ToolContext):
        """Go."""
        try:
            yield 1
            status_of(ctx).cancel()
            yield 2
            closed.append("never reached")
        finally:
            closed.append("closed")

    handle(steps)
    assert closed == ["closed"]


def test_without_an_assessment_the_tool_s_own_word_counts():
    for mutating, kind in (
        (True, ActionKind.OWN_TOOL_MUTATING),
        (False, ActionKind.OWN_TOOL_READING),
    ):
        handler = FunctionToolHandler(fresh(where, mutating=mutating))
        call = ToolCall("where", "c", FunctionPayload("{}"))
        invocation = handler.prepare(call, ToolContext(Turn().context, "c", "where"))
        assert handler.assess(invocation) == [Action(kind, "where")]
        assert handler.is_mutating(invocation) is mutating


def test_always_is_bound_to_the_tool_and_its_arguments():
    @tool(name="one", freeform=("lark", "x"))
    def one(what: str) -> str:
        """Act."""
        return what

    @tool(name="two")
    def two(what: str) -> str:
        """Act."""
        return what

    def fingerprint(fn, payload):
        handler = FunctionToolHandler(fn)
        turn = Turn(approval=ApprovalPolicy.UNTRUSTED)
        call = ToolCall(fn.tool_options.name, "c", payload)
        context = ToolContext(turn.context, "c", call.tool_name)
        (action,) = handler.assess(handler.prepare(call, context))
        return action.fingerprint

    a, b = FunctionPayload('{"what": "a"}'), FunctionPayload('{"what": "b"}')
    assert fingerprint(one, a) == fingerprint(one, a) != ""
    others = [(one, b), (one, CustomPayload("a")), (one, CustomPayload("b")), (two, a)]
    assert len({fingerprint(*other) for other in [(one, a), *others]}) == 5


def test_an_assessment_sees_the_checked_arguments_by_name():
    seen = []

    def assess(arguments, ctx):
        seen.append((arguments, ctx.call_id))
        return []

    @tool(inline=True, assess=assess, freeform=("lark", "x"))
    def act(text: str, times: int = 1) -> str:
        """Act."""
        return text

    handler = FunctionToolHandler(act)
    context = ToolContext(Turn().context, "c", "act")
    for payload in (CustomPayload("a"), FunctionPayload('{"input": "a", "times": "2"}')):
        handler.assess(handler.prepare(ToolCall("act", "c", payload), context))
    assert seen == [({"text": "a"}, "c"), ({"text": "a", "times": 2}, "c")]


def test_paths_are_judged_whatever_a_tool_s_own_assessment_says():
    @tool(inline=True)
    def plain(ctx: ToolContext) -> str:
        """Ask."""
        return str(ctx.validate_path("a", "write"))

    @tool(inline=True, assess=lambda arguments, ctx: [])
    def assessed(ctx: ToolContext) -> str:
        """Ask."""
        return str(ctx.validate_path("a", "write"))

    assert handle(plain).text == "write:a"
    assert handle(assessed).text == "write:a"


def test_paths_of_this_package_s_assessed_tools_are_not_judged_twice():
    def ours(ctx: ToolContext) -> str:
        """Ask."""
        return str(ctx.validate_path("a", "write"))

    ours.__module__ = "agent_magics.tools.ours"
    assert handle(tool(inline=True, assess=lambda arguments, ctx: [])(ours)).text == "judged:a"


def test_which_payloads_are_taken():
    handler = FunctionToolHandler(fresh(where))
    assert handler.matches_kind(FunctionPayload("{}"))
    assert not handler.matches_kind(CustomPayload(""))
    assert not handler.matches_kind(McpPayload("s", "t", "{}"))


def test_a_cancelled_pool_tool_is_told_and_given_a_moment():
    began, ended = threading.Event(), []

    @tool(parallel=True)
    def work(ctx: ToolContext) -> str:
        """Work until told."""
        began.set()
        ctx.cancelled.wait()
        ended.append("cleaned up")
        return "half"

    async def main():
        handler = FunctionToolHandler(work)
        call = ToolCall("work", "c", FunctionPayload("{}"))
        invocation = handler.prepare(call, ToolContext(Turn().context, "c", "work"))
        task = asyncio.create_task(handler.handle(invocation))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["cleaned up"]

    asyncio.run(main())


def test_a_result_that_has_no_form_after_its_turn_is_nobodys_error(monkeypatch):
    begun, may_fail, problems = threading.Event(), threading.Event(), []

    def fail(*_):
        begun.set()
        may_fail.wait(PATIENCE)
        raise RespondToModel("It has no form.")

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda _, told: problems.append(told))
        working = asyncio.create_task(FunctionToolHandler(tool(where))._output_in_time(None, None))
        await asyncio.to_thread(begun.wait, PATIENCE)
        working.cancel()
        await asyncio.wait({working})
        del working
        may_fail.set()
        for thread in threading.enumerate():
            if thread.name == "agent-words":
                await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)  # in which its error arrives
        gc.collect()

    monkeypatch.setattr(FunctionToolHandler, "_output_of", fail)
    asyncio.run(main())
    assert problems == []
