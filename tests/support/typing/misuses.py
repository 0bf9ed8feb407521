"""Mistakes with agent-magics, one in each marked line."""

from agent_magics import Agent, ToolContext, tool
from agent_magics.tools import read_file


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def show(text: str, *, ctx: ToolContext) -> str:
    """Show it."""
    ctx.cancel()  # mistake
    ctx.processes.begin()  # mistake
    ctx.diff_tracker.writing([])  # mistake
    return text


add("1", 2)  # mistake
add(1).bit_length()  # mistake
print(add.spek)  # mistake
read_file(5)  # mistake
Agent(tools=[5])  # mistake
Agent(aproval="never")  # mistake
print(Agent().run_sync("Go").txt)  # mistake
