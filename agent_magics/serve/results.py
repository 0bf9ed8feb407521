"""What a tool gave back, in the protocol's own words."""

import json
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent

from agent_magics.protocol.items import ContentPart, InputText, Json
from agent_magics.protocol.tools import ToolOutput


def result_of(output: ToolOutput, *, data: bool) -> CallToolResult:
    """Return a tool's output as the result of a call; a failure is told in it, never raised.

    Args:
        output: what the tool gave back.
        data: the tool returns values, not text: where its text is JSON, it is also given as data.
    """
    parts = output.content
    if isinstance(parts, str):
        parts = (InputText(parts),)
    return CallToolResult(
        content=[_block_of(part) for part in parts],
        structured_content=_data_of(output) if data and output.success else None,
        is_error=not output.success,
    )


def failure(reason: str) -> CallToolResult:
    """Return the result of a call that could not be made."""
    return CallToolResult(content=[TextContent(text=reason)], is_error=True)


def _block_of(part: ContentPart) -> ContentBlock:
    if isinstance(part, InputText):
        return TextContent(text=part.text)
    head, comma, data = part.image_url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImageContent(data=data, mime_type=head[len("data:") : -len(";base64")])
    return TextContent(text=f"Image: {part.image_url}")


def _data_of(output: ToolOutput) -> dict[str, Any] | None:
    """Return the JSON object or list that the whole text is.

    The text is read and not the value itself: keys have been taken out of the text alone. Clients
    of 2025 know only objects, so a list is put into one, as the SDK's own servers do.
    """
    if not isinstance(output.content, str) or output.content[:1] not in ("{", "["):
        return None
    try:
        value: Json = json.loads(output.content)
    except (ValueError, RecursionError):
        return None  # text that only begins like JSON, or JSON that was cut to fit
    return value if isinstance(value, dict) else {"result": value}
