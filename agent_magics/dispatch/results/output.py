"""Converts a tool's result for the model: text within a budget, images as images.

Any Python value must be converted, so nothing here raises because of a value: a part that cannot be
shown is named instead. Libraries are recognised by the names of their types and are never imported
for it.
"""

import base64
import io
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from agent_magics.dispatch.results.outline import (
    MOST_CHARACTERS,
    can_be_written,
    is_outline,
    is_small,
    outline,
)
from agent_magics.dispatch.results.values import bases_of, defines, made_by, safe_repr, type_name
from agent_magics.protocol.items import Content, ContentPart, InputImage, InputText
from agent_magics.protocol.tools import ToolOutput

TABLE_ROWS = 20
# Rows and columns of a table that are tried in turn, until it is short enough.
_TABLE_SIZES = ((TABLE_ROWS, 20), (10, 10), (6, 6), (4, 4))
CELL_WIDTH = 40
IMAGE_SIDE = 2048  # pixels; the longest side of a picture that is sent
MIXED_PARTS = 8  # a longer list with figures or tables in it is shown as one JSON text
_ARRAY_ELEMENTS = 200
NONE_TEXT = "Done; the tool returned None."
_CUT_MARK = " characters left out …"
_CUT = re.compile(rf"^… \d+{_CUT_MARK}$", re.MULTILINE)
_TABLES = (("pandas", "DataFrame"), ("pandas", "Series"))
_PLAIN_TYPES = frozenset((int, float, bool, dict, list, tuple))
_PLAIN_ELEMENTS = _PLAIN_TYPES | {str, type(None)}


def small_output(value: object, budget: int) -> ToolOutput | None:
    """Do the same as `to_tool_output` for a small value, only faster; None for all others.

    Others are those whose conversion may run code, take long, or leave something out.
    """
    if value is None:
        return ToolOutput(NONE_TEXT)
    if not is_small(value):
        return None
    text = _fit(value, budget) if type(value) is str else _encoded(value)
    return ToolOutput(text, value=value) if len(text) <= min(budget, MOST_CHARACTERS) else None


def to_tool_output(value: Any, budget: int) -> ToolOutput:
    """Convert `value` for the model; never raises because of the value.

    Args:
        value: a tool's result. An object with ``to_output(budget)`` converts itself; a nonzero
            ``output_budget`` of it replaces `budget`.
        budget: the most characters of text for the model; images are not counted.

    Returns:
        The output; its `value` is `value` itself.
    """
    kind = type(value)
    if kind is str:
        return ToolOutput(_fit(value, budget), value=value)
    if kind in _PLAIN_TYPES and not (kind in (list, tuple) and _holds_parts(value)):
        return ToolOutput(_fit_data(_json_text(value), value, budget), value=value)
    if kind is ToolOutput:
        return _fit_output(value, budget)
    if value is None:
        return ToolOutput(NONE_TEXT)
    if defines(kind, "to_output"):
        fitting = getattr(value, "output_budget", 0) or budget
        output = _fit_output(value.to_output(budget), fitting)
        return output if output.value is not None else replace(output, value=value)
    try:
        content = _content_of(value)
    except Exception as error:  # a class whose metaclass raises
        content = f"A {type_name(value)} that cannot be shown: {type(error).__name__}."
    if isinstance(content, str) and not issubclass(kind, str):
        return ToolOutput(_fit_data(content, value, budget), value=value)
    return ToolOutput(_fit_content(content, budget), value=value)


def brief_text(value: object) -> str:
    """Return the type and the beginning of `value` in about 400 tokens at most."""
    known = _renderer_of(type(value))
    content = _show(known, value) if known is not None else ""
    if isinstance(content, str) and 0 < len(content) <= MOST_CHARACTERS:
        return content
    return outline(value)


def is_cut(output: ToolOutput) -> bool:
    """Return whether the text was cut to fit its budget, or is an outline."""
    text = output.text
    return is_outline(text) or (_CUT_MARK in text and _CUT.search(text) is not None)


def whole_text(value: Any) -> str:
    """Return all of `value` as text that can be read and searched: tables as CSV, data as JSON."""
    if issubclass(type(value), str):
        return str(value)
    known = _library_class(type(value))
    try:
        if known in _TABLES:
            return str(value.to_csv())
        if known == ("numpy", "ndarray"):
            import numpy  # noqa: PLC0415 - already loaded, or there would be no array

            return str(numpy.array2string(value, threshold=value.size + 1, max_line_width=100))
        if issubclass(type(value), (bytes, bytearray, memoryview)):
            return bytes(value).decode("utf-8", "backslashreplace")
        encoded = _json_encoder()(value, indent=1, fallback=_encode_piece, inf_nan_mode="constants")
        return str(encoded.decode())
    except Exception:  # not convertible to JSON, or the library's own failure
        return safe_repr(value)


def cut_text(text: str, budget: int) -> tuple[str, int]:
    """Return the head and the tail of `text` within `budget`, and the count of missing characters.

    Cuts fall on line ends where one is near. A marker between the two names the count; it comes on
    top of the budget.
    """
    if len(text) <= budget:
        return text, 0
    half = max(budget, 0) // 2
    head = text.rfind("\n", half // 2, half) + 1 or half
    tail = len(text) - (max(budget, 0) - half)
    line = text.find("\n", tail, tail + half // 2)
    if line >= 0:
        tail = line + 1
    start, end, omitted = text[:head], text[tail:], tail - head
    gap = "\n" if start and not start.endswith("\n") else ""
    return f"{start}{gap}… {omitted}{_CUT_MARK}\n{end}", omitted


# -- fitting into the budget -------------------------------------------------------------------


def _fit(text: str, budget: int) -> str:
    if len(text) > budget:
        text, _ = cut_text(text, budget)
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # lone surrogates, as in file names; no request can carry them
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text


def _fit_data(text: str, value: object, budget: int) -> str:
    """Return the text of data within the budget: whole, or an outline, never parts of JSON.

    A model reads the whole for 400 tokens at most, and asks for more of it by the stored result.
    """
    most = min(budget, MOST_CHARACTERS)
    return text if len(text) <= most else outline(value, most)


def _fit_content(content: Content, budget: int) -> Content:
    if isinstance(content, str):
        return _fit(content, budget)
    fitted: list[ContentPart] = []
    left = budget
    for part in content:
        if isinstance(part, InputText):
            fitted.append(InputText(_fit(part.text, left)))
            left = max(left - len(part.text), 0)
        else:
            fitted.append(part)
    return tuple(fitted)


def _fit_output(output: ToolOutput, budget: int) -> ToolOutput:
    if output.is_fitted:
        return output
    content = _fit_content(output.content, budget)
    if content == output.content:
        return output
    return ToolOutput(content, output.success, output.details, output.value)


# -- from values to text and parts -------------------------------------------------------------


def _content_of(value: Any) -> Content:
    kind = type(value)
    if kind in (InputText, InputImage):
        return (value,)
    if defines(kind, "__dataclass_fields__"):  # the common case, before the searches below
        return _json_text(value)
    if kind in (bytes, bytearray, memoryview):
        return _describe_bytes(bytes(value))
    if kind in (list, tuple) and _holds_parts(value):
        return _join_parts(value)
    show = _renderer_of(type(value))
    return _show(show, value) if show is not None else _json_text(value)


def _show(render: Callable[[Any], Content], value: object) -> Content:
    try:
        return render(value)
    except Exception as error:  # the library's own failure must not end the turn
        return f"A {type_name(value)} that cannot be shown: {type(error).__name__}."


def _holds_parts(values: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether a short list is better shown item by item, such as ``(figure, axes)``."""
    if not 0 < len(values) <= MIXED_PARTS:
        return False
    return any(
        type(value) not in _PLAIN_ELEMENTS
        and (type(value) in (InputText, InputImage) or _renderer_of(type(value)) is not None)
        for value in values
    )


def _join_parts(values: list[Any] | tuple[Any, ...]) -> Content:
    parts: list[ContentPart] = []
    for value in values:
        content = value if type(value) is str else _content_of(value)
        new = (InputText(content),) if isinstance(content, str) else content
        parts.extend(part for part in new if part not in parts)  # axes show their figure again
    if all(isinstance(part, InputText) for part in parts):
        return "\n\n".join(part.text for part in parts if isinstance(part, InputText))
    return tuple(parts)


@cache
def _json_encoder() -> Callable[..., bytes]:
    from pydantic_core import to_json  # noqa: PLC0415 - 25 ms, not needed before the first call

    return to_json


def _json_text(value: object) -> str:
    """Return `value` as compact JSON; a single string without quotes.

    A value that is too large, too deep, or endless is outlined.
    """
    return _encoded(value) if can_be_written(value) else outline(value)


def _encoded(value: object) -> str:
    try:
        text = _json_encoder()(value, fallback=_encode_piece, inf_nan_mode="constants").decode()
    except Exception:  # bytes that are no text, cycles, lone surrogates, a raising property
        text = _hard_text(value)
    return _unquote(text) if text[:1] == '"' else text


def _hard_text(value: object) -> str:
    try:
        encoded = _json_encoder()(
            value, fallback=_encode_piece, inf_nan_mode="constants", bytes_mode="base64"
        )
        return encoded.decode()
    except Exception:  # not convertible to JSON
        return _short_repr(value) if type(value) not in _PLAIN_TYPES else outline(value)


def _unquote(text: str) -> str:
    from pydantic_core import from_json  # noqa: PLC0415 - see _json_encoder

    return str(from_json(text))


def _encode_piece(piece: Any) -> Any:
    """Encode a value that JSON does not know: NumPy scalars as numbers, others as text."""
    root, _ = made_by(type(piece))
    try:
        if root == "numpy" and hasattr(piece, "tolist") and piece.size <= _ARRAY_ELEMENTS:
            plain = piece.tolist()
            return plain if type(plain) is not type(piece) else str(piece)
    except Exception:
        return safe_repr(piece)
    render = _renderer_of(type(piece))
    content = _show(render, piece) if render is not None else None
    if isinstance(content, str):
        return content
    return _short_repr(piece)


def _short_repr(value: object) -> str:
    return cut_text(safe_repr(value), MOST_CHARACTERS)[0]


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


# -- results of data libraries -------------------------------------------------------------------


def _render_frame(frame: Any) -> str:
    rows, columns = frame.shape
    head = f"DataFrame, {rows} rows x {columns} columns\n"
    for most_rows, most_columns in _TABLE_SIZES:
        text = head + _columns_and_table(frame, most_rows, most_columns)
        if len(text) <= MOST_CHARACTERS:
            return text
    return text


def _columns_and_table(frame: Any, most_rows: int, most_columns: int) -> str:
    names, dtypes = frame.columns[:most_columns], frame.dtypes.iloc[:most_columns]
    columns = [f"{name} {dtype}" for name, dtype in zip(names, dtypes, strict=True)]
    if frame.shape[1] > most_columns:
        columns.append(f"… {frame.shape[1] - most_columns} more")
    table = frame.to_string(
        max_rows=most_rows,
        min_rows=most_rows,
        max_cols=most_columns,
        max_colwidth=CELL_WIDTH,
        show_dimensions=False,
    )
    return f"dtypes: {', '.join(columns)}\n{table}"


def _render_series(series: Any) -> str:
    name = "" if series.name is None else f" {series.name!r}"
    table = series.to_string(max_rows=TABLE_ROWS, min_rows=TABLE_ROWS)
    return f"Series{name}, {len(series)} values, dtype {series.dtype}\n{table}"


def _render_array(array: Any) -> str:
    import numpy  # noqa: PLC0415 - already loaded, or there would be no array

    shown = numpy.array2string(array, threshold=_ARRAY_ELEMENTS, edgeitems=5, max_line_width=100)
    return f"ndarray, shape {array.shape}, dtype {array.dtype}\n{shown}"


def _render_figure(figure: Any) -> Content:
    width, height = figure.get_size_inches()
    dpi = min(figure.dpi, IMAGE_SIDE / max(width, height))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    lines = [f"Figure, {round(width * dpi)} x {round(height * dpi)} pixels"]
    for number, axes in enumerate(figure.axes, start=1):
        labels = {"title": axes.get_title(), "x": axes.get_xlabel(), "y": axes.get_ylabel()}
        labelled = ", ".join(f"{name} {text!r}" for name, text in labels.items() if text)
        if labelled:
            lines.append(f"axes {number}: {labelled}")
    return (InputText("; ".join(lines)), _image_part(buffer.getvalue()))


def _render_axes(axes: Any) -> Content:
    return _render_figure(axes.get_figure())


def _render_picture(picture: Any) -> Content:
    width, height = picture.size
    text = f"Image, {width} x {height} pixels, mode {picture.mode}"
    if picture.mode not in ("1", "L", "LA", "P", "RGB", "RGBA"):
        picture = picture.convert("RGB")
    if max(width, height) > IMAGE_SIDE:
        picture = picture.copy()
        picture.thumbnail((IMAGE_SIDE, IMAGE_SIDE))
        text += f", shown at {picture.size[0]} x {picture.size[1]}"
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return (InputText(text), _image_part(buffer.getvalue()))


def _image_part(png: bytes) -> InputImage:
    return InputImage("data:image/png;base64," + base64.b64encode(png).decode("ascii"))


_RENDERERS: dict[tuple[str, str], Callable[[Any], Content]] = {
    ("pandas", "DataFrame"): _render_frame,
    ("pandas", "Series"): _render_series,
    ("numpy", "ndarray"): _render_array,
    ("matplotlib", "Figure"): _render_figure,
    ("matplotlib", "Axes"): _render_axes,
    ("PIL", "Image"): _render_picture,
}


def _renderer_of(kind: type) -> Callable[[Any], Content] | None:
    known = _library_class(kind)
    return None if known is None else _RENDERERS[known]


def _library_class(kind: type) -> tuple[str, str] | None:
    """Return the (library, class) of `kind` or of a base that has a renderer."""
    for base in bases_of(kind):
        known = made_by(base)
        if known in _RENDERERS:
            return known
    return None
