"""Cells that set up an agent with a scripted model in a kernel."""

AGENTS = "get_ipython().magics_manager.registry['AgentMagics'].agents"

# Two functions of the person: where a sync and an async tool run is what differs between the ways
# to run a cell.
TOOLS = """
@tool
def plain(n: int) -> str:
    \"\"\"Add one, on the main thread.\"\"\"
    return f"plain {n + 1}"


@tool
async def awaited(n: int) -> str:
    \"\"\"Add two, on the cell's loop.\"\"\"
    import asyncio

    await asyncio.sleep(0)
    return f"awaited {n + 2}"


@tool
async def waits() -> str:
    \"\"\"Wait for what never comes.\"\"\"
    import asyncio

    print("at work", flush=True)
    await asyncio.Event().wait()
"""

# A wait in C that an interrupt ends, also one that arrives as it begins: Python looks for signals,
# then makes the system call, and what comes between them would not end `time.sleep`.
WAITS_IN_C = """
def wait_in_c(says=print):
    import os, select, signal

    ends, begins = os.pipe()
    os.set_blocking(begins, False)
    signal.set_wakeup_fd(begins)
    try:
        says("at work", flush=True)
        while True:
            select.select([ends], [], [])
    finally:
        signal.set_wakeup_fd(-1)
        os.close(ends)
        os.close(begins)
"""

# A tool that waits until a cell opens its gate.
GATE = '''
import asyncio

gate, reached = asyncio.Event(), asyncio.Event()

@tool
async def wait_for_gate() -> str:
    """Wait until another cell opens the gate."""
    reached.set()
    await gate.wait()
    return "the gate is open"
'''

# A model that says a word and then nothing more, until it is stopped.
SLOW_MODEL = """
import asyncio
from agent_magics.models.base import TextChunk


class SlowModel:
    source, name = "script", "slow"

    async def stream(self, request):
        yield TextChunk("Well, ")
        await asyncio.Event().wait()

    def secrets(self):
        return ()

    async def close(self):
        pass
"""

# Prints "valid", or the calls of the conversation that have no output.
HISTORY_IS_VALID = f"""
items = {AGENTS}["default"].session.conversation.history.items
answered = {{item.call_id for item in items if type(item).__name__ == "ToolCallOutput"}}
open_calls = [item for item in items if "Call" == type(item).__name__[-4:]
              and item.call_id not in answered]
print(len(items), open_calls or "valid")
"""


def scripted(*turns: str, name: str = "default") -> str:
    """Return a cell that gives agent `name` a script; each turn is a Python expression."""
    return (
        "%load_ext agent_magics\n"
        "from agent_magics import Agent, Call, ScriptedModel, tool\n"
        f"{AGENTS}[{name!r}] = "
        f"Agent(ScriptedModel([{', '.join(turns)}]), name={name!r})\n"
    )


def outputs(name: str = "default") -> str:
    """Return an expression for the outputs of calls that the model was given."""
    items = f"{AGENTS}[{name!r}].session.conversation.history.items"
    return f"[item.output for item in {items} if type(item).__name__ == 'ToolCallOutput']"
