"""Converts a tool's output to a result of the protocol."""

from typing import Any

from mcp_types import CallToolResult, ContentBlock, ImageContent, TextContent

from agent_magics.protocol.items import ContentPart, InputText, json_or
from agent_magics.protocol.tools import ToolOutput


def result_of(output: ToolOutput, *, data: bool) -> CallToolResult:
    """Convert a tool's output to an MCP result; a failure sets ``isError`` and is never raised.

    Args:
        output: the tool's output.
        data: whether the tool returns values, not text: JSON text is then also given as structured
            content.
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
    """Return an MCP error result for a call that could not be made."""
    return CallToolResult(content=[TextContent(text=reason)], is_error=True)


def _block_of(part: ContentPart) -> ContentBlock:
    if isinstance(part, InputText):
        return TextContent(text=part.text)
    head, comma, data = part.image_url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return ImageContent(data=data, mime_type=head[len("data:") : -len(";base64")])
    return TextContent(text=f"Image: {part.image_url}")


def _data_of(output: ToolOutput) -> dict[str, Any] | None:
    """Parse an output's whole text as a JSON object or list; None where it is neither.

    The text is parsed rather than the value used: secrets have been redacted in the text alone.
    Clients of 2025 accept only objects, so a list is put into one, as the SDK's own servers do.
    """
    if not isinstance(output.content, str) or output.content[:1] not in ("{", "["):
        return None
    # It may only begin like JSON, or be JSON that was cut to fit.
    value = json_or(output.content, None)
    return {"result": value} if isinstance(value, list) else value
