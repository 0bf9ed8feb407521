"""Converts a tool's result for the model: text within a budget, images as images.

Any Python value must be converted, so nothing here raises because of a value: a part that cannot be
shown is named instead.
"""

from dataclasses import replace
from typing import Any, get_args

from agent_magics.dispatch.results.cutting import encodable, fit_text, has_cut, left_out
from agent_magics.dispatch.results.json_text import PLAIN_TYPES, encoded_text, json_text
from agent_magics.dispatch.results.outline import (
    MOST_CHARACTERS,
    has_more_parts,
    is_outline,
    is_small,
    outline,
)
from agent_magics.dispatch.results.renderers import library_class, render, render_text
from agent_magics.dispatch.results.values import Types, defines, plain_text, type_name
from agent_magics.protocol.errors import AgentMagicsError, clause, typed_message
from agent_magics.protocol.items import (
    Content,
    ContentPart,
    InputImage,
    InputText,
    join_parts,
    parts_of,
    text_of,
)
from agent_magics.protocol.tools import ToolOutput

MIXED_PARTS = 8  # a longer list with figures or tables in it is shown as one JSON text
# Characters that a result which converts itself may take at least: its last lines say how to get
# the rest, and a cut leaves out the middle.
LEAST = 1_000
_LEAST_PART = 8  # characters that each of many texts counts for
NONE_TEXT = "Done; the tool returned None."
_PLAIN_ELEMENTS = PLAIN_TYPES | Types(str, type(None))
_PARTS = Types(InputText, InputImage)
_BYTES = Types(bytes, bytearray, memoryview)
_LISTS = Types(list, tuple)


def small_output(value: object, budget: int) -> ToolOutput | None:
    """Do the same as `to_tool_output` for a small value, only faster; None for all others.

    Others are those whose conversion may run code, take long, or leave something out.
    """
    if value is None:
        return ToolOutput(NONE_TEXT)
    if not is_small(value):
        return None
    text = encodable(value) if type(value) is str else encoded_text(value)
    return ToolOutput(text, value=value) if len(text) <= min(budget, MOST_CHARACTERS) else None


def to_tool_output(value: Any, budget: int) -> ToolOutput:
    """Convert `value` for the model; never raises because of the value.

    Args:
        value: a tool's result. An object with ``to_output(budget)`` converts itself, within at
            least `LEAST` characters; a nonzero ``output_budget`` of it replaces `budget`.
        budget: the most characters of text for the model; images are not counted.

    Returns:
        The output; its `value` is `value` itself.
    """
    kind = type(value)
    if kind is str:
        return ToolOutput(fit_text(value, budget), value=value)
    if kind in PLAIN_TYPES and not (kind in _LISTS and _holds_parts(value)):
        most = min(budget, MOST_CHARACTERS)
        is_long = has_more_parts(value, most)  # to write all of it would take longer
        text = outline(value, most) if is_long else _fit_data(json_text(value), value, budget)
        return ToolOutput(text, value=value)
    if kind is ToolOutput:
        return _fit_output(value, budget)
    if value is None:
        return ToolOutput(NONE_TEXT)
    try:
        if defines(kind, "to_output"):
            fitting = getattr(value, "output_budget", 0) or max(budget, LEAST)
            said = value.to_output(budget)
            output = _fit_output(said, fitting)
            return output if said.value is not None else replace(output, value=value)
        content = _content_of(value)
    except AgentMagicsError:
        raise
    except BaseException as error:  # a class may raise anything, also SystemExit
        content = f"A {type_name(value)} that cannot be shown: {clause(typed_message(error))}."
    if isinstance(content, str) and not issubclass(kind, str):
        return ToolOutput(_fit_data(content, value, budget), value=value)
    return ToolOutput(_fit_content(content, budget), value=value)


def brief_text(value: object) -> str:
    """Return the type and the beginning of `value` in about 400 tokens at most."""
    text = render_text(value)
    return text if text and len(text) <= MOST_CHARACTERS else outline(value)


def is_cut(output: ToolOutput) -> bool:
    """Return whether the text was cut to fit its budget, or is an outline."""
    text = output.text
    return is_outline(text) or has_cut(text)


# -- fitting into the budget -------------------------------------------------------------------


def _fit_data(text: str, value: object, budget: int) -> str:
    """Return the text of data within the budget: whole, or an outline, never parts of JSON.

    A model reads the whole for 400 tokens at most, and asks for more of it by the stored result.
    """
    most = min(budget, MOST_CHARACTERS)
    return text if len(text) <= most else outline(value, most)


def _fit_content(content: Content, budget: int) -> Content:
    if isinstance(content, str):
        return fit_text(content, budget)
    fitted: list[ContentPart] = []
    left, missing = budget, 0
    for part in content:
        if not isinstance(part, InputText):
            fitted.append(part)
        elif left > 0:
            text = encodable(part.text)
            fitted.append(InputText(fit_text(text, left)))
            left -= max(len(text), _LEAST_PART)
        else:
            missing += len(part.text)
    return (*fitted, InputText(left_out(missing))) if missing else tuple(fitted)


def _fit_output(output: ToolOutput, budget: int) -> ToolOutput:
    if output.is_fitted:
        return output
    plain = _plain_content(output.content)
    content = _fit_content(plain, budget)
    if content is output.content:
        return output
    value = text_of(plain) if output.value is None and content != plain else output.value
    return ToolOutput(content, output.success, output.details, value)


def _plain_content(content: Any) -> Content:
    """Return a tool's own content with no subclass in it, since theirs would run code later.

    Raises:
        TypeError: it is no content.
    """
    if type(content) is str:
        return content
    if issubclass(type(content), str):
        return plain_text(content)
    return tuple(map(_plain_part, content))


def _plain_part(part: Any) -> ContentPart:
    if type(part) is InputText:
        return InputText(plain_text(part.text))
    if type(part) is InputImage:
        detail: Any = plain_text(part.detail)
        if detail not in get_args(InputImage.__annotations__["detail"]):
            raise ValueError(f"{detail!r} is no detail of an image")
        return InputImage(plain_text(part.image_url), detail)
    raise TypeError(f"content is a str or InputText and InputImage, not {type_name(part)}")


# -- from values to text and parts -------------------------------------------------------------


def _content_of(value: Any) -> Content:
    kind = type(value)
    if kind in _PARTS:
        return (_plain_part(value),)
    if defines(kind, "__dataclass_fields__"):  # the common case, before the searches below
        return json_text(value)
    if kind in _BYTES:
        return _describe_bytes(bytes(value))
    if kind in _LISTS and _holds_parts(value):
        return _join_parts(value)
    content = render(value)
    return json_text(value) if content is None else content


def _holds_parts(values: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether a short list is better shown item by item, such as ``(figure, axes)``."""
    if not 0 < len(values) <= MIXED_PARTS:
        return False
    return any(
        type(value) not in _PLAIN_ELEMENTS
        and (type(value) in _PARTS or library_class(type(value)) is not None)
        for value in values
    )


def _join_parts(values: list[Any] | tuple[Any, ...]) -> Content:
    parts: list[ContentPart] = []
    for value in values:
        content = value if type(value) is str else _content_of(value)
        # Axes show their figure again.
        parts.extend(part for part in parts_of(content) if part not in parts)
    return join_parts(parts, "\n\n")


def _describe_bytes(data: bytes) -> str:
    if not data:
        return "bytes: none (empty)"
    start = f"bytes: {len(data)} of them, starting {data[:32].hex(' ')}"
    kind = next((name for magic, name in _MAGIC.items() if data.startswith(magic)), "")
    named = f" ({kind})" if kind else ""
    return f"{start}{named}. To look inside, decode them or write them to a file."


_MAGIC = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"%PDF": "a PDF",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "gzip data",
    b"PAR1": "a Parquet file",
}
