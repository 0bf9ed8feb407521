"""``batch``: several calls in one, each with the checks, places and events of a single call."""

import asyncio
import json
import re
import threading
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from agent_magics import Call, FatalError, ToolContext, tool
from agent_magics.approval.actions import Action, ActionKind
from agent_magics.dispatch.registry import ToolInvocation
from agent_magics.dispatch.tool import ToolOptions
from agent_magics.protocol.events import (
    ApprovalRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
)
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.tools import FunctionToolSpec, ToolOutput
from tests.support.turns import PATIENCE, happened, in_thread, of_kind, scripted

ORDER: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    ORDER.clear()


@tool(parallel=True, mutating=False)
def echo(text: str) -> str:
    """Say it back."""
    return text


@tool
def write(name: str) -> str:
    """Write, one at a time."""
    ORDER.append(f"{name} begins")
    ORDER.append(f"{name} ends")
    return f"wrote {name}"


@tool(parallel=True)
def fails() -> None:
    """Fail."""
    raise ValueError("no")


def calls(*pairs):
    return {"calls": [{"tool": name, "arguments": arguments} for name, arguments in pairs]}


def batch(*pairs, tools=(), **options):
    agent = scripted(tools=["batch", echo, write, fails, *tools], **options)
    return agent.call_sync("batch", calls(*pairs))


def test_outputs_stand_in_the_order_of_the_calls():
    output = batch(("echo", {"text": "one"}), ("write", {"name": "two"}))
    assert output.success
    assert output.text == ("2 of 2 calls succeeded.\n\n[1] echo:\none\n\n[2] write:\nwrote two")


def test_one_that_fails_does_not_stop_the_rest():
    output = batch(("fails", {}), ("nothing", {}), ("echo", {"no": 1}), ("echo", {"text": "ok"}))
    assert output.success
    assert output.text.startswith("1 of 4 calls succeeded.")
    assert "[1] fails failed:\nfails raised ValueError: no" in output.text
    assert "[2] nothing failed:\nThere is no tool named 'nothing'" in output.text
    assert "[3] echo failed:\n" in output.text
    assert output.text.endswith("[4] echo:\nok")


def test_where_all_fail_it_has_failed():
    assert not batch(("fails", {}), ("fails", {})).success


@pytest.mark.parametrize("count", [0, 26])
def test_how_many(count):
    output = batch(*[("echo", {"text": "a"})] * count)
    assert not output.success
    assert f"expected 1 to 25 calls, got {count}" in output.text


def test_the_most_there_may_be():
    output = batch(*[("echo", {"text": str(n)}) for n in range(25)])
    assert output.text.startswith("25 of 25 calls succeeded.")


def test_no_batch_in_a_batch():
    output = batch(("batch", calls(("echo", {"text": "a"}))), ("echo", {"text": "b"}))
    assert "[1] batch failed:\nNot run: a batch cannot stand in a batch." in output.text
    assert output.text.endswith("[2] echo:\nb")


def test_those_that_may_run_side_by_side():
    together = threading.Barrier(3)

    @tool(parallel=True)
    def meet() -> str:
        """Wait for the others."""
        together.wait(PATIENCE)
        return "met"

    output = batch(*[("meet", {})] * 3, tools=[meet])
    assert output.text.startswith("3 of 3")


def test_those_that_exclude_each_other_run_in_order():
    batch(*[("write", {"name": str(n)}) for n in range(6)])
    assert [f"{n} {word}" for n in range(6) for word in ("begins", "ends")] == ORDER


def test_a_batch_that_only_reads_runs_beside_others_and_one_that_writes_does_not():
    together = threading.Barrier(2)

    @tool(parallel=True)
    def meet() -> str:
        """Wait for the other."""
        together.wait(PATIENCE)
        return "met"

    agent = scripted(
        [Call("meet"), Call("batch", calls(("meet", {})))],
        [
            Call("write", {"name": "a"}),
            Call("batch", calls(("write", {"name": "b"}))),
            Call("write", {"name": "c"}),
        ],
        "Done.",
        tools=["batch", meet, write],
    )
    result = agent.run_sync("Go.")
    assert result.status == "completed"
    assert [f"{n} {word}" for n in "abc" for word in ("begins", "ends")] == ORDER


def test_each_call_has_its_own_events_and_questions():
    asked = []

    def answer(question):
        asked.append(question.arguments)
        return "deny" if "b" in question.arguments else "approve"

    agent = scripted(
        Call(
            "batch",
            calls(("write", {"name": "a"}), ("write", {"name": "b"}), ("write", {"name": "c"})),
        ),
        "Done.",
        tools=["batch", write],
        approval="untrusted",
        on_question=answer,
    )
    result = agent.run_sync("Go.")
    assert len(of_kind(result, ApprovalRequested)) == len(asked) == 3
    begun = [(e.name, e.parent_call_id) for e in of_kind(result, ToolCallPending)]
    assert begun == [("batch", None), *[("write", "call_1")] * 3]
    assert len(of_kind(result, ToolCallCompleted)) == 3
    assert len(of_kind(result, ToolCallFailed)) == 1
    assert [line for line in ORDER if "begins" in line] == ["a begins", "c begins"]


def test_what_ends_the_turn_ends_it_here_too():
    @tool(parallel=True)
    def broken() -> None:
        """Break."""
        raise FatalError("No licence.")

    agent = scripted(
        Call("batch", calls(("broken", {}), ("echo", {"text": "a"}))), tools=["batch", broken, echo]
    )
    assert agent.run_sync("Go.").error == "No licence."


def test_pictures_stay_pictures():
    @tool(parallel=True)
    def picture() -> list:
        """Show."""
        return [InputText("see"), InputImage("data:image/png;base64,AAAA")]

    output = batch(("picture", {}), ("echo", {"text": "a"}), tools=[picture])
    assert InputImage("data:image/png;base64,AAAA") in output.content


def test_each_output_gets_its_share_of_the_budget():
    output = batch(("echo", {"text": "x" * 9_000}), ("echo", {"text": "end"}), output_budget=2_000)
    assert len(output.text) < 2_500
    assert output.text.endswith("[2] echo:\nend")


@tool(parallel=True, mutating=False)
def load(rows: int) -> pd.DataFrame:
    """Load."""
    return pd.DataFrame({"a": range(rows)})


@tool(parallel=True, mutating=False)
def listed(rows: int) -> list:
    """List."""
    return [{"id": number, "text": "x" * 50} for number in range(rows)]


@tool(parallel=True, mutating=False)
def told(lines: int) -> str:
    """Tell."""
    return "".join(f"line {number}\n" for number in range(lines))


@tool(parallel=True, mutating=False)
def taken(value: Any) -> str:
    """Take."""
    return f"{type(value).__name__} of {len(value)}"


CUT = [("load", {"rows": 100}), ("listed", {"rows": 300}), ("told", {"lines": 3_000})]


def test_what_is_cut_or_no_text_has_a_name_as_after_a_single_call():
    agent = scripted(tools=["batch", "read_file", load, listed, told, taken], output_budget=6_000)
    output = agent.call_sync("batch", calls(*CUT, ("taken", {"value": "short"})))
    names = re.findall(r"^\[(@r\d): ", output.text, re.MULTILINE)
    assert len(names) == 3 and output.text.endswith("[4] taken:\nstr of 5")
    again = [agent.call_sync("taken", {"value": name}).text for name in names]
    assert sorted(again) == ["DataFrame of 100", "list of 300", f"str of {len(told(3_000))}"]
    for name, arguments in CUT:
        alone = re.sub(r"@r\d", "@r", agent.call_sync(name, arguments).text.splitlines()[-1])
        assert alone in re.sub(r"@r\d", "@r", output.text)


def test_what_one_of_our_own_tools_says_has_a_name_where_the_batch_cuts_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.txt").write_text(told(1_000), encoding="utf-8")
    agent = scripted(tools=["batch", "read_file"], output_budget=8_000)
    output = agent.call_sync("batch", calls(*[("read_file", {"path": "long.txt"})] * 5))
    name = re.findall(r"^\[(@r\d): the whole text", output.text, re.MULTILINE)[0]
    assert "line 150" not in output.text
    assert "line 150" in agent.call_sync("read_file", {"path": name, "start_line": 145}).text


def test_each_of_the_most_calls_has_its_name():
    output = batch(*[("told", {"lines": 3_000 + n}) for n in range(25)], tools=[told])
    assert len(re.findall(r"^\[@r\d+: the whole text, ", output.text, re.MULTILINE)) == 25


def test_what_code_gets_has_no_name():
    @tool(name="outer")
    async def calling(ctx: ToolContext) -> str:
        """Call a batch."""
        output = await ctx.call("batch", calls(*CUT))
        return f"{'@r' in output.text} {len(output.text) < 9_000} {list(map(len, output.value))}"

    agent = scripted(tools=[calling, "batch", load, listed, told], output_budget=6_000)
    assert agent.call_sync("outer", {}).text == f"False True [100, 300, {len(told(3_000))}]"


def test_a_batch_from_inside_another_call_waits_for_nobody():
    @tool(name="outer")
    async def calling(ctx: ToolContext) -> str:
        """Call a batch."""
        inner = calls(("write", {"name": "a"}), ("write", {"name": "b"}))
        return (await ctx.call("batch", inner)).text

    agent = scripted(Call("outer"), "Done.", tools=[calling, "batch", write])
    result = agent.run_sync("Go.")
    assert result.calls[-1].output.startswith("2 of 2 calls succeeded.")


# -- places ----------------------------------------------------------------------------------------


CHANGED = threading.Event()


@tool(parallel=True, mutating=False)
async def linger() -> str:
    """Be slow."""
    ORDER.append("linger begins")
    await happened(CHANGED)
    for _ in range(2_000):  # for those that would not wait
        await asyncio.sleep(0)
    ORDER.append("linger ends")
    return "slow"


WRITING = [{"tool": "write", "arguments": {"name": "b"}}]
ALONE = ["linger begins", "linger ends", "b begins", "b ends"]


@pytest.mark.parametrize(
    "written",
    [WRITING, json.dumps(WRITING), [json.dumps(WRITING[0])]],
    ids=["plain", "text", "texts"],
)
def test_a_batch_that_writes_runs_alone_however_it_is_written(written):
    CHANGED.set()
    agent = scripted(
        [Call("linger"), Call("batch", {"calls": written})], "Done.", tools=["batch", linger, write]
    )
    agent.run_sync("Go.")
    assert ORDER == ALONE


@pytest.mark.parametrize("changed_by", ["hook", "person"])
def test_a_batch_that_is_changed_to_one_that_writes_runs_alone(changed_by):
    @tool(group=True)
    async def together(calls: list[dict], ctx: ToolContext) -> str:
        """Make calls."""
        return (await ctx.call(calls[0]["tool"], calls[0]["arguments"])).text

    CHANGED.clear()

    class Hook:
        def before_tool(self, call):
            if call.tool != "together":
                return None
            CHANGED.set()
            return {"calls": WRITING}

    def answer(question):
        CHANGED.set()
        edited = {"calls": WRITING} if question.tool == "together" else None
        return SimpleNamespace(decision="approve", edited_arguments=edited)

    agent = scripted(
        [Call("linger"), Call("together", calls(("echo", {"text": "a"})))],
        "Done.",
        tools=[together, linger, write, echo],
        hooks=[Hook()] if changed_by == "hook" else [],
        approval="never" if changed_by == "hook" else "untrusted",
        on_question=answer,
    )
    agent.run_sync("Go.")
    assert ORDER == ALONE


def group_of(begun):
    """Return a tool that gives up its first call once that runs, and one that never ends."""

    @tool(mutating=False)
    async def stuck() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    @tool(mutating=False, group=True)
    async def mine(calls: list[dict], ctx: ToolContext) -> str:
        """Make calls, and wait for the last one alone."""
        running = [asyncio.ensure_future(ctx.call(c["tool"], c["arguments"])) for c in calls]
        await happened(begun)
        for each in reversed(running[:-1]):
            each.cancel()
        return (await running[-1]).text

    return stuck, mine


def test_a_call_that_its_group_gives_up_lets_the_next_one_in():
    begun = threading.Event()
    stuck, mine = group_of(begun)
    agent = scripted(tools=[stuck, mine, write])
    waiting, last = ("write", {"name": "a"}), ("write", {"name": "b"})
    assert agent.call_sync("mine", calls(("stuck", {}), waiting, last)).text == "wrote b"
    assert ORDER == ["b begins", "b ends"]


class Faulty:
    """A program's handler with a bug, in one of its methods."""

    kind, supports_parallel, action = "faulty", False, None
    options = ToolOptions("faulty")
    spec = FunctionToolSpec("faulty", "Fail.", {"type": "object", "properties": {}})

    def __init__(self, at, error):
        def fails(*_):
            raise error

        setattr(self, at, fails)

    def matches_kind(self, payload):
        return True

    def how_to_call(self):
        return ""

    def prepare(self, call, context):
        return ToolInvocation(call, context)

    def assess(self, invocation):
        return [Action(ActionKind.OWN_TOOL_READING, "faulty")]

    def is_mutating(self, invocation):
        return False

    async def handle(self, invocation):
        return ToolOutput("")


@pytest.mark.parametrize("error", [LookupError(), SystemExit(), KeyboardInterrupt()])
@pytest.mark.parametrize("at", ["matches_kind", "prepare", "assess", "handle"])
def test_a_call_that_fails_by_a_bug_lets_the_next_one_in(at, error):
    @tool(mutating=False, group=True)
    async def mine(calls: list[dict], ctx: ToolContext) -> str:
        """Make calls, whatever they raise."""
        running = [ctx.call(c["tool"], c["arguments"]) for c in calls]
        answers = await asyncio.gather(*running, return_exceptions=True)
        return str([type(each).__name__ for each in answers])

    agent = scripted(tools=[mine, Faulty(at, error), write])
    made = calls(("write", {"name": "a"}), ("faulty", {}), ("write", {"name": "b"}))
    done = in_thread(lambda: agent.call_sync("mine", made)).result()
    name = "LookupError" if isinstance(error, LookupError) else "RuntimeError"
    assert done.text == str(["ToolOutput", name, "ToolOutput"])
    assert ORDER == ["a begins", "a ends", "b begins", "b ends"]


def test_a_call_that_ends_the_turn_lets_none_of_its_group_in():
    @tool(mutating=False)
    async def stuck() -> None:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()

    @tool(mutating=False)
    def look(name: str) -> str:
        """Look, one at a time."""
        ORDER.append(name)
        return name

    @tool(mutating=False, group=True)
    async def mine(calls: list[dict], ctx: ToolContext) -> str:
        """Make calls, whatever they raise."""
        running = [ctx.call(c["tool"], c["arguments"]) for c in calls]
        return str(await asyncio.gather(*running, return_exceptions=True))

    async def stop(question):
        await happened(begun)
        return "abort"

    made = calls(
        ("stuck", {}), ("look", {"name": "a"}), ("look", {"name": "b"}), ("write", {"name": "c"})
    )
    for group in ("mine", "batch"):
        for _ in range(10):
            begun = threading.Event()
            agent = scripted(
                Call(group, made),
                "The model goes on.",
                tools=[stuck, look, write, mine, "batch"],
                approval="untrusted",
                on_question=stop,
            )
            assert agent.run_sync("Go.").status == "aborted"
    assert ORDER == []
