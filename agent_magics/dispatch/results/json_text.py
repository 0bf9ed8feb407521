"""Writes any Python value as JSON text; a value that is too large or endless is outlined."""

import json
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from agent_magics.dispatch.results.cutting import cut_text
from agent_magics.dispatch.results.numpy_values import python_value
from agent_magics.dispatch.results.outline import MOST_CHARACTERS, can_be_written, outline
from agent_magics.dispatch.results.renderers import ARRAY_ELEMENTS, library_class, render_text
from agent_magics.dispatch.results.values import Types, defines, made_by, safe_repr, type_name

_TABLES = (("pandas", "DataFrame"), ("pandas", "Series"))
# Of the class datetime, of which they have neither year nor month.
_MISSING_TIMES = (("pandas", "NaTType"),)
PLAIN_TYPES = Types(int, float, bool, dict, list, tuple)


def plain_object(value: object) -> dict[str, Any]:
    """Return a copy of a JSON object in Python's own types alone; other values become text.

    Raises:
        TypeError: it is no object, or a foreign class's own error.
    """
    text = json.dumps(value, default=str, skipkeys=True, ensure_ascii=False)
    plain = json.loads(text.encode("utf-8", "replace"))  # lone surrogates become "?"
    if type(plain) is not dict:
        raise TypeError(f"a JSON object is expected, not {type_name(value)}")
    return plain


def json_text(value: object) -> str:
    """Return `value` as compact JSON; a single string without quotes.

    A value that is too large, too deep, or endless is outlined.
    """
    return encoded_text(value) if can_be_written(value) else outline(value)


def encoded_text(value: object) -> str:
    """Return `value` as compact JSON, whatever its size; a single string without quotes."""
    try:
        text = _json_encoder()(value, fallback=_encode_piece, inf_nan_mode="constants").decode()
    except Exception:  # bytes that are no text, cycles, lone surrogates, a raising property
        text = _hard_text(value)
    return _unquote(text) if text[:1] == '"' else text


def _hard_text(value: object) -> str:
    try:
        return _encode_by_pieces(value)
    except Exception:  # not convertible to JSON, such as what contains itself
        return _short_repr(value) if type(value) not in PLAIN_TYPES else outline(value)


def _unquote(text: str) -> str:
    from pydantic_core import from_json  # noqa: PLC0415 - see _json_encoder

    return str(from_json(text))


def whole_text(value: Any) -> str:
    """Return all of `value` as text that can be read and searched: tables as CSV, data as JSON."""
    if issubclass(type(value), str):
        return str(value)
    known = library_class(type(value))
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
    except Exception:  # as in `encoded_text`, or the library's own failure
        return _hard_whole_text(value)


def _hard_whole_text(value: object) -> str:
    try:
        return _encode_by_pieces(value, indent=1)
    except Exception:  # not convertible to JSON, such as what contains itself
        return safe_repr(value)


def _encode_by_pieces(value: object, indent: int | None = None) -> str:
    """Encode a value some pieces of which JSON cannot hold: these alone are written otherwise."""
    try:
        return _encode(value, indent)
    except Exception:
        return _encode(_mended(value), indent)


def _encode(value: object, indent: int | None = None) -> str:
    encoded = _json_encoder()(
        value,
        indent=indent,
        fallback=_encode_piece,
        inf_nan_mode="constants",
        bytes_mode="base64",
    )
    return encoded.decode()


def _mended(value: Any) -> Any:
    """Return a copy in which NaT is None, and what else JSON cannot hold is its repr."""
    kind = type(value)
    if issubclass(kind, dict):
        return {_mended_key(key): _mended(each) for key, each in dict.items(value)}
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            return [_mended(each) for each in base.__iter__(value)]
    if kind in PLAIN_TYPES:
        return value
    if made_by(kind) in _MISSING_TIMES:
        return None
    try:
        _encode(value)
        return value
    except Exception:
        parts = _fields_of(value)
        return safe_repr(value) if parts is None else _mended(parts)


def _mended_key(key: Any) -> Any:
    try:
        _encode({key: None})
        return key
    except Exception:
        return safe_repr(key)


def _fields_of(value: Any) -> dict[str, Any] | None:
    """Return the fields of a dataclass or a model of pydantic, as JSON has them."""
    kind = type(value)
    if defines(kind, "__pydantic_fields__"):
        return dict(value)
    if defines(kind, "__dataclass_fields__"):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return None


@cache
def _json_encoder() -> Callable[..., bytes]:
    from pydantic_core import to_json  # noqa: PLC0415 - 25 ms, not needed before the first call

    return to_json


def _encode_piece(piece: Any) -> Any:
    """Encode a value that JSON does not know: NumPy scalars as numbers, others as text."""
    root, _ = made_by(type(piece))
    try:
        if root == "numpy" and hasattr(piece, "tolist") and piece.size <= ARRAY_ELEMENTS:
            plain = python_value(piece)
            return plain if type(plain) is not type(piece) else str(piece)
    except Exception:
        return safe_repr(piece)
    text = render_text(piece)
    return _short_repr(piece) if text is None else text


def _short_repr(value: object) -> str:
    return cut_text(safe_repr(value), MOST_CHARACTERS)[0]
