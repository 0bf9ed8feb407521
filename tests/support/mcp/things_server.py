"""A real stdio MCP server, for tests of how its tools are offered and called.

``things_server.py [--after FIFO] [--many N] [--mute] [--dead]``: `--after` starts once somebody
writes to the pipe, `--many` offers that many more tools, `--mute` never answers, `--dead` ends.
"""

import argparse
import base64
import sys

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import AudioContent, SamplingMessage, TextContent, ToolAnnotations
from pydantic import BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
READS = ToolAnnotations(read_only_hint=True)
DESTROYS = ToolAnnotations(destructive_hint=True)

server = MCPServer("things", instructions="Things are kept here. Search before you delete.")
deleted: list[str] = []


@server.tool(annotations=READS)
def search(q: str, limit: int = 10) -> list[str]:
    """Find things by words."""
    return [f"{q} {number}" for number in range(min(limit, 3))]


@server.tool(annotations=DESTROYS)
def delete(name: str) -> str:
    """Delete a thing."""
    deleted.append(name)
    return f"deleted {name}"


@server.tool()
def count(words: list[str]) -> int:
    """Count words."""
    return len(words)


@server.tool(annotations=READS, structured_output=False)
def text(characters: int) -> str:
    """Give a long text."""
    return "line of text\n" * (characters // 13)


@server.tool(annotations=READS, name="with.dots and spaces", structured_output=False)
def dotted() -> str:
    """A tool with a name that no provider takes."""
    return "dotted"


@server.tool(annotations=READS, structured_output=False)
def picture() -> Image:
    """Give a picture."""
    return Image(data=PIXEL, format="png")


@server.tool(annotations=READS, structured_output=False)
def sound() -> AudioContent:
    """Give a sound."""
    data = base64.b64encode(b"RIFF" + bytes(100)).decode()
    return AudioContent(type="audio", data=data, mime_type="audio/wav")


@server.tool(annotations=READS)
def fail() -> str:
    """Fail."""
    raise ToolError("no such thing")


@server.tool(annotations=READS)
async def work(context: Context, storm: int = 0) -> str:
    """Work for a while, and say how far it is, or so many times, at length, that all is done."""
    await context.info("began")
    for _ in range(storm):
        await context.report_progress(1, 1, "done " * 1_000)
    for step in range(1, 4):
        await context.report_progress(step, 3, f"step {step}")
    return "worked"


class Colour(BaseModel):
    """What is asked for."""

    colour: str


@server.tool(annotations=READS)
async def ask(context: Context) -> str:
    """Ask the person."""
    answer = await context.elicit("Which colour?", Colour)
    return f"{answer.action} {answer.data.colour if answer.action == 'accept' else ''}".strip()


@server.tool(annotations=READS)
async def think(context: Context) -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="What is 2 + 2?"))
    try:
        answer = await context.session.create_message([message], max_tokens=50)
    except Exception as error:
        return f"refused: {error}"
    return f"it says {answer.content.text}"


@server.tool(annotations=READS)
async def describe_anew(context: Context) -> str:
    """Describe the tool `delete` in another way."""
    server.remove_tool("delete")
    server.add_tool(delete, description="Delete a thing, and all others.", annotations=DESTROYS)
    await context.session.send_tool_list_changed()
    return "done"


@server.resource("things://all", mime_type="text/plain", description="All things.")
def everything() -> str:
    """All things."""
    return "one\ntwo"


@server.resource("things://{name}", mime_type="text/plain")
def one(name: str) -> str:
    """One thing."""
    return f"the thing {name}"


def main() -> None:
    """Serve according to the options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--after")
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--mute", action="store_true")
    parser.add_argument("--dead", action="store_true")
    options = parser.parse_args()
    if options.dead:
        sys.exit("no licence")
    if options.after:
        with open(options.after, "rb") as pipe:
            pipe.read(1)
    if options.mute:
        sys.stdin.read()
        return
    for number in range(options.many):
        add_one(number)
    server.run("stdio")


def add_one(number: int) -> None:
    """Offer one more tool."""
    verb = ("create", "update", "close", "list", "watch")[number % 5]
    noun = ("issue", "branch", "release", "label", "team")[number // 5 % 5]

    def tool(owner: str, repository: str, body: str = "") -> str:
        return f"{owner}/{repository}"

    server.add_tool(
        tool,
        name=f"{verb}_{noun}_{number}",
        description=f"{verb.title()} a {noun} of a repository, number {number} of its kind.",
    )


if __name__ == "__main__":
    main()
