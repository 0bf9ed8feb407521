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

# A sub-agent that gets the live kernel; its code calls a tool and hits a guard rail.
SHARING = f"""
%load_ext agent_magics
from agent_magics import Agent, Call, ScriptedModel

CODE = "rows = [1, 2]; text = await read_file.aio('note.txt'); total = sum(given) + len(rows)"


def answer(request):
    if "You are the sub-agent" in request.instructions:
        return child.pop(0)
    return parent.pop(0)


share = {{"task": "Sum.", "agent_type": "worker", "share": ["kernel"]}}
wait = Call("wait", {{"timeout_ms": 60000}})
parent = [Call("spawn_agent", share), wait, "Done."]
child = [Call("python", {{"code": CODE}}), Call("python", {{"code": "!true"}}), "Summed."]
{AGENTS}["default"] = Agent(ScriptedModel([answer] * 9))
given = [3, 4]
open("note.txt", "w").write("Hello.")
"""
