"""Typical uses of agent-magics; type checkers must accept them with the installed package."""

from collections.abc import Mapping
from typing import Any, assert_type

from agent_magics import Abort, Agent, Block, DynamicToolSpec, RespondToModel, ToolContext, tool
from agent_magics.dispatch.hooks import HookedCall
from agent_magics.engine.results.run import FinishedCall, RunResult
from agent_magics.models.base import ModelRequest
from agent_magics.models.recordings.scripted import Call, ScriptedModel
from agent_magics.protocol.events import Event, Question
from agent_magics.protocol.items import Usage
from agent_magics.protocol.tools import FunctionToolSpec, ToolOutput
from agent_magics.tools import apply_patch, grep_files, list_dir, read_file

# -- tools -------------------------------------------------------------------------------------


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(name="look_up", parallel=True, mutating=False, timeout=10)
async def look_up(word: str, *, ctx: ToolContext) -> list[str]:
    """Look a word up."""
    ctx.update(title=word, progress=0.5)
    await ctx.ask(permission="network", patterns=[word])
    path = ctx.validate_path("words.txt")
    if not path.exists():
        raise RespondToModel(f"{path} is not there.")
    if ctx.diff_tracker is not None:
        with ctx.diff_tracker.writing([path]):
            path.touch()
    answer = await ctx.call("add", {"a": 1})
    return [answer.text, *(session.command for session in ctx.processes.sessions())]


assert_type(add(1, b=2), int)
assert_type(add.spec, FunctionToolSpec)


async def by_hand(ctx: ToolContext) -> None:
    """Tools stay functions."""
    assert_type(await look_up("word", ctx=ctx), list[str])
    await add.aio(1, b=2)


# -- hooks, questions --------------------------------------------------------------------------


class Watch:
    """Looks at what an agent does."""

    def before_model(self, request: ModelRequest) -> ModelRequest | None:
        """See a request."""
        return None

    def before_tool(self, call: HookedCall) -> HookedCall | Block | None:
        """Stop a tool."""
        return Block("not today") if call.tool == "shell" else None

    async def after_tool(self, call: HookedCall, output: ToolOutput) -> ToolOutput | Abort | None:
        """See an output."""
        return None if output.success else Abort(output.text)

    def on_event(self, event: Event) -> None:
        """See an event."""


def answer(question: Question) -> str:
    """Answer a question."""
    return "approve" if question.question_id else "deny"


# -- agents ------------------------------------------------------------------------------------


def main() -> RunResult:
    """Run an agent."""
    model = ScriptedModel([[Call("add", {"a": 1})], "Done."])
    with Agent(
        model,
        [add, look_up, len, "read-only"],
        approval="untrusted",
        sandbox="read-only",
        on_question=answer,
        hooks=[Watch()],
        mcp_servers={"time": {"command": "mcp-server-time"}},
        max_turns=5,
    ) as agent:
        agent.register(add)
        agent.register(DynamicToolSpec("echo", "Say it back."), callback=echo)
        result = agent.run_sync("Go", output=list[int])
        assert_type(result.status, str)
        assert_type(result.text, str)
        assert_type(result.error, str | None)
        assert_type(result.calls, list[FinishedCall])
        assert_type(result.usage, Usage)
        assert_type(result.cost, float | None)
        assert_type(result.diff, str)
        assert_type(agent.call_sync("add", {"a": 1}), ToolOutput)
    return result


async def waiting(agent: Agent) -> str:
    """Run an agent on the loop."""
    assert_type(await agent.call("add", {"a": 1}), ToolOutput)
    return (await agent.run("Go")).text


def echo(arguments: Mapping[str, Any]) -> str:
    """Answer the calls of a tool that is data."""
    return str(arguments)


# -- the built-in tools, by hand ---------------------------------------------------------------

list_dir(".")
grep_files("words", path=".")
apply_patch("*** Begin Patch\n*** End Patch")
read_file("a.txt", start_line=1)
