"""A correct MCP server, made with the SDK: every kind of result and of question."""

import asyncio
import base64
import os
import sys
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from pydantic import BaseModel

PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360"
        "f8cf500f0003860180345d5ed20000000049454e44ae426082"
    )
).decode()

server = MCPServer("good", instructions="Be good.", version="4.2")


class Point(BaseModel):
    """A point."""

    x: int
    y: int


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True, title="Addition"))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def point(x: int, y: int) -> Point:
    """Return a point, as text and structured."""
    return Point(x=x, y=y)


@server.tool()
def everything() -> types.CallToolResult:
    """Return content of every kind."""
    wav = base64.b64encode(b"RIFF").decode()
    page = types.TextResourceContents(uri="file:///a.txt", text="inside", mime_type="text/plain")
    blob = types.BlobResourceContents(uri="file:///a.zip", blob=wav, mime_type="application/zip")
    return types.CallToolResult(
        content=[
            types.TextContent(type="text", text="hello"),
            types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
            types.ImageContent(type="image", data="no base64", mime_type="image/png"),
            types.AudioContent(type="audio", data=wav, mime_type="audio/wav"),
            types.ResourceLink(type="resource_link", uri="file:///b.csv", name="b", size=7),
            types.EmbeddedResource(type="resource", resource=page),
            types.EmbeddedResource(type="resource", resource=blob),
        ],
        structured_content={"kind": "all"},
    )


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("out of soup")


@server.tool()
async def work(ctx: Context, steps: int = 3) -> str:
    """Report progress and log messages."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    await ctx.session.send_log_message(level="warning", data="half done", logger="worker")
    return "done"


class Order(BaseModel):
    """What is ordered."""

    dish: str
    count: int = 1


@server.tool()
async def order(ctx: Context) -> str:
    """Ask the person what to order."""
    answer = await ctx.elicit("What shall it be?", Order)
    if answer.action != "accept":
        return f"nothing: {answer.action}"
    return f"{answer.data.count} x {answer.data.dish}"


@server.tool()
async def visit(ctx: Context) -> str:
    """Ask the person to open an address."""
    answer = await ctx.elicit_url("Please sign.", "https://example.org/sign", "e1")
    return answer.action


@server.tool()
async def sample(ctx: Context) -> str:
    """Ask the client's model."""
    message = types.SamplingMessage(
        role="user", content=types.TextContent(type="text", text="What is 1 + 1?")
    )
    answer = await ctx.session.create_message([message], max_tokens=10, system_prompt="Be short.")
    return answer.content.text


@server.tool()
async def roots(ctx: Context) -> list[str]:
    """Return the client's roots."""
    return [str(root.uri) for root in (await ctx.session.list_roots()).roots]


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
async def touch(ctx: Context, uri: str) -> str:
    """Say that a resource has changed, in both ways."""
    await ctx.session.send_resource_updated(uri)
    await ctx.notify_resource_updated(uri)
    return "touched"


@server.tool()
def environment() -> dict[str, str]:
    """Return the server's environment."""
    return dict(os.environ)


@server.tool()
def place() -> dict[str, Any]:
    """Return where the server runs."""
    return {"cwd": os.getcwd(), "pid": os.getpid(), "leads": os.getsid(0) == os.getpid()}


@server.resource("memo://one", mime_type="text/plain")
def memo() -> str:
    """A memo."""
    return "remember"


@server.resource("memo://picture", mime_type="image/png")
def picture() -> bytes:
    """A picture."""
    return base64.b64decode(PIXEL)


@server.resource("memo://{name}/page")
def page(name: str) -> str:
    """A page of somebody."""
    return f"page of {name}"


@server.prompt()
def greet(name: str) -> list[Any]:
    """Greet somebody."""
    return [UserMessage(f"Greet {name}.")]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        transport, port = sys.argv[1], int(sys.argv[2])
        server.run(transport, host="127.0.0.1", port=port)
    else:
        server.run("stdio")
