"""Cells with an agent whose model delegates, and a sub-agent that works until it is stopped."""

from tests.support.kernels.cells import AGENTS

# One model for both: a sub-agent is recognised by its instructions.
DELEGATING = f"""
%load_ext agent_magics
from agent_magics import Agent, Call, ScriptedModel, ToolContext, tool


@tool(mutating=False, parallel=True)
def hang(ctx: ToolContext) -> str:
    \"\"\"Return when the turn is stopped.\"\"\"
    ctx.cancelled.wait()
    return ""


def answer(request):
    if "You are the sub-agent" in request.instructions:
        return Call("hang")
    return "It is on its way."


{AGENTS}["default"] = Agent(
    ScriptedModel([Call("spawn_agent", {{"task": "Look around."}}), *[answer] * 9]),
    ["coding", hang],
)
"""
CHILDREN = f"{AGENTS}['default'].sub_agents.agents"
