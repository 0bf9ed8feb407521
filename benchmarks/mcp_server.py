"""A stdio MCP server for measurements: `mcp_server.py [how many more tools]`."""

import asyncio
import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True)
SUBJECTS = ("invoice", "customer", "order", "ticket", "branch", "release", "meeting", "report")
VERBS = ("create", "update", "delete", "search", "archive")

server = MCPServer("measured")


@server.tool(annotations=READS)
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool(annotations=READS)
async def nap(i: int) -> str:
    """Wait for 50 ms."""
    await asyncio.sleep(0.05)
    return f"nap {i}"


def many(count: int) -> None:
    """Add tools of a usual size: five parameters with descriptions."""

    def act(title: str, body: str = "", labels: list[str] = [], limit: int = 20, dry: bool = False):  # noqa: B006 - a schema's default
        return title

    for number in range(count):
        verb, subject = VERBS[number % len(VERBS)], SUBJECTS[number // len(VERBS) % len(SUBJECTS)]
        server.add_tool(
            act,
            name=f"{verb}_{subject}_{number}",
            description=f"{verb.capitalize()} a {subject} in the tracker; returns its identifier "
            f"and an address where people can look at it. Use it once a {subject} is known.",
        )


many(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
server.run("stdio")
