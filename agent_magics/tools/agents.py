"""``spawn_agent`` and the other tools with which an agent has others do a part of its work."""

from collections.abc import Mapping
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.dispatch.turn import AgentBudget, SubAgentRequest, SubAgents
from agent_magics.protocol.errors import RespondToModel

# Milliseconds that `wait` waits where the call does not say, and at most.
_WAIT, _LONGEST_WAIT = 30_000, 3_600_000


def _assess_spawn(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Return the start of a sub-agent, and what it would do to the person's kernel."""
    bound = fingerprint_of("spawn_agent", repr(arguments))
    start = Action(
        ActionKind.OWN_TOOL_MUTATING, "spawn_agent", fingerprint=bound, family="spawn_agent"
    )
    agents = ctx.turn.agents()
    if agents is None or not agents.gets_kernel(_request(arguments)):
        return [start]
    # No family, so that what was allowed to the agent itself does not flow down.
    kernel = Action(
        ActionKind.LIVE_PYTHON,
        "give a sub-agent your kernel",
        "the sub-agent's Python would run in your kernel, which is not sandboxed",
        f"kernel:{bound}",
        subject="python",
    )
    return [start, kernel]


def _request(arguments: Mapping[str, Any], call_id: str = "") -> SubAgentRequest:
    tools = arguments.get("tools")
    return SubAgentRequest(
        task=arguments["task"],
        agent_type=arguments.get("agent_type") or "explore",
        name=arguments.get("name") or "",
        tools=None if tools is None else tuple(tools),
        model=arguments.get("model") or "",
        budget=arguments.get("budget") or AgentBudget(),
        share=tuple(arguments.get("share") or ()),
        call_id=call_id,
    )


@tool(assess=_assess_spawn)
async def spawn_agent(
    task: str,
    agent_type: str | None = None,
    name: str | None = None,
    tools: list[str] | None = None,
    model: str | None = None,
    budget: AgentBudget | None = None,
    share: list[str] | None = None,
    *,
    ctx: ToolContext | None = None,
) -> str:
    """Start a sub-agent: it works beside you on a task, and reports when it ends.

    Use it for large independent work, such as looking through many files. It knows only the task
    and what you share. Four work at a time, more wait.

    Args:
        task: all that it must know, and what to report.
        agent_type: "explore" (the default) reads and searches, "worker" also changes things;
            list_agents names others.
        name: its id in later calls.
        tools: some of yours; else all of its type.
        budget: less than its type may spend (cost in USD).
        share: "conversation", kept results (@r1), "kernel": a worker's Python runs in the person's
            (one at a time; they are asked).
    """
    call, agents = _in_turn(ctx, "spawn_agent")
    given: dict[str, Any] = {"task": task, "agent_type": agent_type, "name": name, "tools": tools}
    given |= {"model": model, "budget": budget, "share": share}
    return agents.spawn(_request(given, call.call_id))


@tool
async def send_input(
    id: str, message: str, interrupt: bool = False, *, ctx: ToolContext | None = None
) -> str:
    """Send a message to a sub-agent; one that has ended goes on with it.

    Args:
        interrupt: stop its running calls.
    """
    call, agents = _in_turn(ctx, "send_input")
    return agents.send(id, message, call.call_id, interrupt=interrupt)


@tool(mutating=False)
async def wait(
    ids: list[str] | None = None, timeout_ms: int = _WAIT, *, ctx: ToolContext | None = None
) -> str:
    """Wait until the first of these sub-agents, or of all, ends.

    Reports also come without it: wait only where you can do nothing else.

    Args:
        timeout_ms: up to 3600000.
    """
    _, agents = _in_turn(ctx, "wait")
    if not 0 <= timeout_ms <= _LONGEST_WAIT:
        raise RespondToModel(f"timeout_ms={timeout_ms} is not from 0 to {_LONGEST_WAIT}.")
    return await agents.wait(tuple(ids or ()), timeout_ms / 1000)


@tool(mutating=False)
async def resume_agent(id: str, *, ctx: ToolContext | None = None) -> str:
    """Let a stopped or failed sub-agent go on, within its budget."""
    call, agents = _in_turn(ctx, "resume_agent")
    return agents.resume(id, call.call_id)


@tool(mutating=False)
async def close_agent(id: str, *, ctx: ToolContext | None = None) -> str:
    """Stop a sub-agent for good; it does not report."""
    _, agents = _in_turn(ctx, "close_agent")
    return agents.close(id)


@tool(mutating=False)
async def list_agents(*, ctx: ToolContext | None = None) -> str:
    """List the sub-agents: what each does and has spent, the types and limits."""
    _, agents = _in_turn(ctx, "list_agents")
    return agents.list()


def _in_turn(ctx: ToolContext | None, name: str) -> tuple[ToolContext, SubAgents]:
    """Return the context of a call, and the sub-agents of its agent.

    Raises:
        RespondToModel: there are none.
    """
    if ctx is None:
        raise RespondToModel(f"{name} works inside a turn; by hand, use agent.spawn(...).")
    agents = ctx.turn.agents()
    if agents is None:
        raise RespondToModel("A sub-agent has no sub-agents of its own: depth 1 is the limit.")
    return ctx, agents
