"""Shows the results of data libraries: tables and arrays as text, figures and images as pictures.

Libraries are recognised by the names of their types and are never imported for it.
"""

import base64
import io
import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, TypeVar

from agent_magics.dispatch.results.outline import MOST_CHARACTERS
from agent_magics.dispatch.results.values import bases_of, made_by, type_name
from agent_magics.protocol.items import Content, InputImage, InputText

Shown = TypeVar("Shown")

TABLE_ROWS = 20
# Rows and columns of a table that are tried in turn, until it is short enough.
_TABLE_SIZES = ((TABLE_ROWS, 20), (10, 10), (6, 6), (4, 4))
CELL_WIDTH = 40
IMAGE_SIDE = 2048  # pixels; the longest side of a picture that is sent
ARRAY_ELEMENTS = 200


def library_class(kind: type) -> tuple[str, str] | None:
    """Return the (library, class) of `kind` or of a base that can be shown; None for others."""
    return next((known for base in bases_of(kind) if (known := made_by(base)) in _ALL), None)


def render(value: object) -> Content | None:
    """Return a library's value as text or pictures; None for other values."""
    return _rendered(value, _ALL)


def render_text(value: object) -> str | None:
    """Return a library's value as text; None for other values, and for pictures."""
    return _rendered(value, _TEXTS)


def _rendered(
    value: object, renderers: Mapping[tuple[str, str], Callable[[Any], Shown]]
) -> Shown | str | None:
    known = library_class(type(value))
    if known is None or known not in renderers:
        return None
    try:
        return renderers[known](value)
    except Exception as error:  # the library's own failure must not end the turn
        return f"A {type_name(value)} that cannot be shown: {type(error).__name__}."


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

    shown = numpy.array2string(array, threshold=ARRAY_ELEMENTS, edgeitems=5, max_line_width=100)
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
    picture = in_eight_bits(picture)
    if picture.mode not in ("1", "L", "LA", "P", "RGB", "RGBA"):
        picture = picture.convert("RGB")
    if max(width, height) > IMAGE_SIDE:
        picture = picture.copy()
        picture.thumbnail((IMAGE_SIDE, IMAGE_SIDE))
        text += f", shown at {picture.size[0]} x {picture.size[1]}"
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG")
    return (InputText(text), _image_part(buffer.getvalue()))


def in_eight_bits(picture: Any) -> Any:
    """Return an image of Pillow with greys of 8 bits, where it has more: they are stretched from
    the darkest to the lightest, unless they are 0 to 255, or 0 to 1 in floats.

    Pillow itself makes all above 255 white.
    """
    if not re.fullmatch("I(;16.*)?|F", picture.mode):
        return picture
    greys = picture if picture.mode == "F" else picture.convert("I")
    darkest, lightest = greys.getextrema() or (0, 0)  # of no pixels
    if picture.mode == "F" and darkest >= 0 and lightest <= 1:
        darkest, lightest = 0, 1
    elif (darkest >= 0 and lightest <= 255) or not isfinite(lightest - darkest):
        return greys.convert("L")
    scale = 255 / (lightest - darkest or 1)
    return greys.point(lambda grey: grey * scale - darkest * scale).convert("L")


def _image_part(png: bytes) -> InputImage:
    return InputImage("data:image/png;base64," + base64.b64encode(png).decode("ascii"))


_TEXTS: dict[tuple[str, str], Callable[[Any], str]] = {
    ("pandas", "DataFrame"): _render_frame,
    ("pandas", "Series"): _render_series,
    ("numpy", "ndarray"): _render_array,
}
_ALL: dict[tuple[str, str], Callable[[Any], Content]] = {
    **_TEXTS,
    ("matplotlib", "Figure"): _render_figure,
    ("matplotlib", "Axes"): _render_axes,
    ("PIL", "Image"): _render_picture,
}
