"""A real stdio server of the Model Context Protocol that asks, and holds what can be read.

Its tools ask for a form or an address; its resources are of every kind that `%agent mcp read`
makes a value of.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
READS = ToolAnnotations(read_only_hint=True)
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "email": {"type": "string", "title": "E-mail", "format": "email"},
        "day": {"type": "string", "title": "Day", "format": "date", "default": "2026-12-24"},
        "guests": {"type": "integer", "title": "Guests", "minimum": 1, "maximum": 9},
        "budget": {"type": "number", "title": "Budget", "description": "In <b>euros</b>."},
        "window": {"type": "boolean", "title": "At the window", "default": True},
        "meal": {
            "type": "string",
            "title": "Meal",
            "oneOf": [{"const": "v", "title": "Vegetarian"}, {"const": "f", "title": "Fish"}],
        },
        "extras": {
            "type": "array",
            "title": "Extras",
            "items": {"type": "string", "enum": ["wine", "cake", "music"]},
            "maxItems": 2,
            "default": ["cake"],
        },
    },
    "required": ["name", "guests", "meal"],
}

server = MCPServer("asking", version="1.2.3")


@server.tool(annotations=READS)
async def book(context: Context) -> str:
    """Book a table; asks for what it needs."""
    message = "Which table? <img src=x onerror=alert(1)>\nIt is yours for two hours."
    answer = await context.session.elicit_form(message, FORM, context.request_id)
    return f"{answer.action} {json.dumps(answer.content)}"


@server.tool(annotations=READS)
async def flood(context: Context, questions: int, together: bool) -> str:
    """Ask again and again."""
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    session, number = context.session, context.request_id
    asked = [session.elicit_form("Sure?", schema, number) for _ in range(questions)]
    answers = await asyncio.gather(*asked) if together else [await each for each in asked]
    return f"{sum(answer.action == 'accept' for answer in answers)} accepted"


@server.tool(annotations=READS)
async def busy(context: Context) -> str:
    """Tell news while it asks."""
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    await context.report_progress(1, 3, "about to ask")
    answer = await context.session.elicit_form("Sure?", schema, context.request_id)
    return f"{answer.action} {json.dumps(answer.content)}"


@server.tool(annotations=READS)
async def visit(context: Context, address: str) -> str:
    """Ask the person to open a page."""
    answer = await context.session.elicit_url("Please sign in.", address, "1", context.request_id)
    return answer.action


@server.resource("asking://words", mime_type="text/plain", description="Some | words.")
def words() -> str:
    """Words."""
    return "one\ntwo"


@server.resource("asking://table.csv", mime_type="text/csv")
def table() -> str:
    """A table."""
    return "a,b\n1,2\n3,4\n"


@server.resource("asking://data", mime_type="application/json")
def data() -> str:
    """JSON."""
    return json.dumps({"a": [1, 2]})


@server.resource("asking://pixel", mime_type="image/png")
def pixel() -> bytes:
    """A picture."""
    return PIXEL


@server.resource("asking://bytes", mime_type="application/octet-stream")
def some_bytes() -> bytes:
    """Bytes."""
    return bytes(range(5))


@server.prompt(description="Greets.")
def greet(who: str, how: str = "kindly") -> str:
    """Greet somebody."""
    return f"Greet {who} {how}."


if __name__ == "__main__":
    sys.stderr.write("asking server at work\n")
    sys.stderr.flush()
    server.run("stdio")
