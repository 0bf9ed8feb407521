"""agent-magics with `@tool(inline=True)` functions, which run on the engine's loop."""

from adapters import ours

IMPORT = ours.IMPORT
WIRES = ("responses", "chat")
CANNOT = {
    "import": "the same as agent-magics",
    "import-cpu": "the same as agent-magics",
    "import-memory": "the same as agent-magics",
    "tools": "the same as agent-magics",
    "parallel-async": "the same as agent-magics",
    "parallel-sync": "inline tools do not wait",
    "dispatch": "the same as agent-magics",
    "memory": "the same as agent-magics",
}


def connect(wire, base_url, functions, turns):
    return ours.connect(wire, base_url, functions, turns, inline=True)
