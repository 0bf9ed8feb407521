"""Converts results of MCP tools for the model and for code."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.cutting import cut_text
from agent_magics.protocol.items import Content, ContentPart, InputImage, InputText, Json, json_or
from agent_magics.protocol.mcp import McpBlob, McpContents, McpResult, McpTool
from agent_magics.protocol.tools import ToolOutput

NOTHING = "Done; the tool gave nothing back."
NO_REASON = "The tool failed; the server does not say why."
_WRAPPED = "result"  # the property into which SDKs wrap a value that is no object


def output_of(result: McpResult, tool: McpTool, context: ToolContext) -> ToolOutput:
    """Convert a result with all its parts; text too long for the model becomes a stored result.

    Args:
        result: the server's result.
        tool: the tool that was called.
        context: the call, in whose conversation results are stored.
    """
    parts = [part for part in result.content if part != InputText("")]
    structured = _structured_text(result)
    if structured:
        parts.append(InputText(structured))
    value = value_of(result, tool)
    if not context.is_from_code:
        parts += [InputText(_kept(blob, _file_of(blob), context)) for blob in result.blobs]
    nothing = NO_REASON if result.is_error else NOTHING
    content = fit_parts(parts, context) if parts else nothing
    return ToolOutput(content, not result.is_error, value=value)


def fit_parts(parts: Sequence[ContentPart], context: ToolContext) -> Content:
    """Cut parts to the call's budget of text; the whole text is then kept as a stored result."""
    texts = [part.text for part in parts if isinstance(part, InputText)]
    whole = "\n".join(texts)
    if len(whole) <= context.output_budget:
        return whole if len(texts) == len(parts) else tuple(parts)
    shown, _ = cut_text(whole, context.output_budget)
    if not context.is_from_code:
        name = context.handles.keep(whole)
        shown += (
            f"\n[{name}: the whole text, {len(whole):,} characters in "
            f"{whole.count(chr(10)) + 1:,} lines; read_file and grep_files take it as a path]"
        )
    pictures = [part for part in parts if isinstance(part, InputImage)]
    return (InputText(shown), *pictures) if pictures else shown


def contents_output(contents: Sequence[McpContents], context: ToolContext) -> ToolOutput:
    """Convert a resource's contents: text as it is, files as stored results."""
    parts: list[ContentPart] = []
    values: list[Any] = []
    for each in contents:
        head = f"{each.uri} ({each.mime_type}):\n" if each.mime_type else f"{each.uri}:\n"
        if each.text is not None:
            parts.append(InputText(head + each.text))
            values.append(each.text)
            continue
        blob = McpBlob(each.blob or "", each.mime_type, each.uri)
        values.append(_file_of(blob))
        parts += _blob_parts(blob, values[-1], context)
    content = fit_parts(parts, context) if parts else "The resource is empty."
    return ToolOutput(content, value=values[0] if len(values) == 1 else values)


def _blob_parts(blob: McpBlob, file: bytes | None, context: ToolContext) -> list[ContentPart]:
    parts: list[ContentPart] = [InputText(_kept(blob, file, context))]
    if blob.mime_type in ("image/png", "image/jpeg", "image/gif", "image/webp") and file:
        parts.append(InputImage(f"data:{blob.mime_type};base64,{blob.data}"))
    return parts


# -- structured and text ---------------------------------------------------------------------------


def _structured_text(result: McpResult) -> str:
    """Return `structuredContent` as text; "" where the text parts contain the same value."""
    if result.structured is None:
        return ""
    texts = [part.text for part in result.content if isinstance(part, InputText)]
    inner: Json = None
    if isinstance(result.structured, Mapping) and set(result.structured) == {_WRAPPED}:
        inner = result.structured[_WRAPPED]
    if _says(texts, result.structured) or (inner is not None and _says(texts, inner)):
        return ""
    return json.dumps(result.structured, ensure_ascii=False)


def _says(texts: Sequence[str], value: Json) -> bool:
    """Return whether texts represent this value: as JSON, plainly, or one text per element."""
    if len(texts) == 1 and value in (texts[0], json_or(texts[0], ...)):
        return True
    if not isinstance(value, list) or len(value) != len(texts):
        return False
    return all(each in (text, json_or(text, ...)) for text, each in zip(texts, value, strict=True))


# -- values for code -------------------------------------------------------------------------------


def value_of(result: McpResult, tool: McpTool) -> Any:
    """Return the value for code: the structured content, else the text, else a list of parts."""
    structured = result.structured
    if isinstance(structured, Mapping) and is_wrapped(tool) and _WRAPPED in structured:
        return structured[_WRAPPED]
    if structured is not None:
        return structured
    parts: list[Any] = [_part_value(part) for part in result.content]
    parts += [file for file in map(_file_of, result.blobs) if file is not None]
    if all(isinstance(part, str) for part in parts):
        return "\n".join(parts) or (NO_REASON if result.is_error else "")
    return parts[0] if len(parts) == 1 else parts


def is_wrapped(tool: McpTool) -> bool:
    """Return whether a tool's value is the only property, ``result``, of its output object."""
    schema = tool.output_schema
    properties = schema.get("properties") if schema else None
    return isinstance(properties, Mapping) and set(properties) == {_WRAPPED}


def _part_value(part: ContentPart) -> object:
    if isinstance(part, InputText):
        return part.text
    head, _, data = part.image_url.partition(",")
    found = _decoded(data) if head.startswith("data:") else None
    return part.image_url if found is None else found


# -- files -----------------------------------------------------------------------------------------


def _file_of(blob: McpBlob) -> bytes | None:
    return _decoded(blob.data)


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def _kept(blob: McpBlob, file: bytes | None, context: ToolContext) -> str:
    """Store a file as a result and return a line that names it."""
    what = " ".join(filter(None, (blob.mime_type or "a file", blob.uri)))
    if file is None:
        return f"[{what}: the server sent it in a form that cannot be read (no base64)]"
    name = context.handles.keep_value(file)
    in_code = f", _{name[1:]} in python code" if "python" in context.turn.functions else ""
    return f"[{name}: {what}, {len(file):,} bytes; it stands for the bytes{in_code}]"
