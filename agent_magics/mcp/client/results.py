"""Converts results from the SDK's types to ours without loss."""

import binascii
from collections.abc import Iterable
from typing import Any

import mcp_types as types

from agent_magics.protocol.items import Content, ContentPart, InputImage, InputText
from agent_magics.protocol.mcp import (
    McpBlob,
    McpContents,
    McpPrompt,
    McpResource,
    McpResult,
    McpTool,
)
from agent_magics.text.invisible import clean_text

# Images that providers accept. An SVG is treated as a file, since it may contain a script.
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BROKEN = "[a picture ({}) whose data is no valid base64 was left out]"


def result_of(answer: types.CallToolResult) -> McpResult:
    """Convert the result of a tool call."""
    content, blobs = _sorted(answer.content)
    return McpResult(tuple(content), tuple(blobs), answer.structured_content, bool(answer.is_error))


def tool_of(server: str, tool: types.Tool) -> McpTool:
    """Convert the description of a tool."""
    hints = tool.annotations or types.ToolAnnotations()
    return McpTool(
        server,
        tool.name,
        clean_text(tool.description or ""),
        clean_text(tool.title or hints.title or ""),
        tool.input_schema,
        tool.output_schema,
        hints.read_only_hint,
        hints.destructive_hint,
        hints.idempotent_hint,
        hints.open_world_hint,
    )


def resource_of(server: str, found: types.Resource | types.ResourceTemplate) -> McpResource:
    """Convert a resource, or a template of resources."""
    if isinstance(found, types.ResourceTemplate):
        uri, size = found.uri_template, None
    else:
        uri, size = found.uri, found.size
    return McpResource(
        server,
        uri,
        found.name,
        clean_text(found.title or ""),
        clean_text(found.description or ""),
        found.mime_type or "",
        size,
    )


def contents_of(part: types.TextResourceContents | types.BlobResourceContents) -> McpContents:
    """Convert one part of a resource that was read."""
    kind = part.mime_type or ""
    if isinstance(part, types.TextResourceContents):
        return McpContents(part.uri, kind, text=part.text)
    return McpContents(part.uri, kind, blob=part.blob)


def prompt_of(server: str, prompt: types.Prompt) -> McpPrompt:
    """Convert a prompt that a server offers."""
    arguments = tuple(
        (each.name, each.description or "", bool(each.required)) for each in prompt.arguments or ()
    )
    return McpPrompt(server, prompt.name, prompt.title or "", prompt.description or "", arguments)


def message_of(message: types.PromptMessage) -> tuple[str, Content]:
    """Convert a message of a prompt to (role, content)."""
    content, blobs = _sorted([message.content])
    content += [InputText(f"[{blob.mime_type}, not readable here]") for blob in blobs]
    return message.role, tuple(content)


def text_of_sampling(message: Any) -> tuple[str, str]:
    """Convert a message of a sampling request to (role, text)."""
    parts = [
        part.text if isinstance(part, types.TextContent) else f"[{part.type}, not passed on]"
        for part in message.content_as_list
    ]
    return message.role, "\n".join(parts)


def _sorted(blocks: Iterable[types.ContentBlock]) -> tuple[list[ContentPart], list[McpBlob]]:
    content: list[ContentPart] = []
    blobs: list[McpBlob] = []
    for block in blocks:
        match block:
            case types.TextContent():
                content.append(InputText(block.text))
            case types.ImageContent() | types.AudioContent():
                _add_bytes(content, blobs, block.data, block.mime_type, "")
            case types.ResourceLink():
                content.append(InputText(_link(block)))
            case types.EmbeddedResource():
                _add_embedded(content, blobs, block.resource)
    return content, blobs


def _add_embedded(
    content: list[ContentPart],
    blobs: list[McpBlob],
    part: types.TextResourceContents | types.BlobResourceContents,
) -> None:
    if isinstance(part, types.TextResourceContents):
        content.append(InputText(f"[resource {part.uri}]\n{part.text}"))
    else:
        kind = part.mime_type or "application/octet-stream"
        _add_bytes(content, blobs, part.blob, kind, part.uri)


def _add_bytes(
    content: list[ContentPart], blobs: list[McpBlob], data: str, kind: str, uri: str
) -> None:
    if kind not in _PICTURES:
        blobs.append(McpBlob(data, kind, uri))
    elif _is_base64(data):
        content.append(InputImage(f"data:{kind};base64,{data}"))
    else:  # a provider would refuse the whole request
        content.append(InputText(_BROKEN.format(kind)))


def _is_base64(data: str) -> bool:
    try:
        return bool(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return False


def _link(link: types.ResourceLink) -> str:
    facts = ", ".join(
        filter(None, (link.mime_type, "" if link.size is None else f"{link.size} bytes"))
    )
    about = f": {link.description}" if link.description else ""
    return (
        f"[resource link {link.uri}] {link.title or link.name}{f' ({facts})' if facts else ''}"
        + about
    )
