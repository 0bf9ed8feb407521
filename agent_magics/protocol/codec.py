"""Converts events, entries, ops and items to JSON and back, driven by their dataclass type hints.

The JSON of an object is its fields, with its class name under ``"type"``. Reading is strict: an
unknown type or field is an error that names it, so that a person who reads a rollout can find the
cause.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from agent_magics.protocol import events, items, ops, records
from agent_magics.protocol.errors import FatalError, clause
from agent_magics.protocol.items import Json

# Types that are JSON already. Compared by exact type for speed: every event passes through here.
_PLAIN = frozenset((str, int, float, bool, type(None)))

Decoder = Callable[[Any], Any]

NOUNS: dict[str, type] = {
    name: kind
    for module in (items, events, ops, records)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and is_dataclass(kind)
}


def to_json(noun: object) -> dict[str, Json]:
    """Encode an event, op or item as a JSON object; the inverse of `from_json`.

    Args:
        noun: an instance of a class in `NOUNS`.

    Returns:
        Its fields by name, and its class name under ``"type"``.
    """
    kind: type = type(noun)
    encoded: dict[str, Json] = {"type": kind.__name__}
    for name in field_names(kind):
        value = getattr(noun, name)
        # Inlined: one more function call per field costs a third of the encoding time.
        encoded[name] = value if type(value) in _PLAIN else _encode(value)
    return encoded


def from_json(data: Mapping[str, Json]) -> Any:
    """Decode an event, entry, op or item from a JSON object; the inverse of `to_json`.

    Args:
        data: the object; ``"type"`` is the name of a class in `NOUNS`.

    Returns:
        An instance of that class.

    Raises:
        FatalError: the type or a field is unknown, or a field is missing.
    """
    kind = NOUNS.get(str(data.get("type")))
    if kind is None:
        raise FatalError(
            f"Unknown type {data.get('type')!r} in a record; was it written by a newer version?"
        )
    decoders = _decoders(kind)
    try:
        return kind(
            **{name: decoders[name](value) for name, value in data.items() if name != "type"}
        )
    except (KeyError, TypeError) as error:
        raise FatalError(
            f"A record of type {kind.__name__} does not fit: {clause(error)}."
        ) from None


@cache
def field_names(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields."""
    return tuple(f.name for f in fields(kind))


def _encode(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return [_encode(element) for element in value]
    if kind is dict or isinstance(value, Mapping):
        return {key: _encode(element) for key, element in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(value)
    return value  # a tool's details may hold any object; the JSON writer converts it


@cache
def _decoders(kind: type) -> dict[str, Decoder]:
    return {name: _decoder_of(hint) for name, hint in get_type_hints(kind).items()}


def _decoder_of(hint: object) -> Decoder:
    """Return the decoder of a field: dataclasses by ``"type"``, tuples from lists, others
    unchanged.
    """
    arguments = get_args(hint)
    if get_origin(hint) is tuple:
        element = _decoder_of(arguments[0])
        return lambda value: tuple(map(element, value))
    if get_origin(hint) in (Union, types.UnionType):
        holds_nouns = any(map(_names_noun, arguments))
        holds_tuple = next((a for a in arguments if get_origin(a) is tuple), None)
        if holds_tuple is not None:
            read_tuple = _decoder_of(holds_tuple)
            return lambda value: read_tuple(value) if isinstance(value, list) else value
        return _decode_noun if holds_nouns else _unchanged
    return _decode_noun if _names_noun(hint) else _unchanged


def _names_noun(hint: object) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _decode_noun(value: object) -> Any:
    return from_json(value) if isinstance(value, Mapping) else value


def _unchanged(value: object) -> Any:
    return value


# -- types of what was decoded ---------------------------------------------------------------------

Check = Callable[[Any], bool]


def is_typed(noun: object) -> bool:
    """Return whether each value of a decoded object is of its field's type, and numbers are finite.

    Decoding does not look: it is for what this process wrote, and a record may come from elsewhere.
    """
    return not ill_typed(noun)


def ill_typed(noun: object) -> list[str]:
    """Return the names of an object's fields whose values are of another type."""
    kind: type = type(noun)
    return [name for name, check in _checks(kind).items() if not check(getattr(noun, name))]


@cache
def _checks(kind: type) -> dict[str, Check]:
    return {name: _check_of(hint) for name, hint in get_type_hints(kind).items()}


def _check_of(hint: Any) -> Check:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in arguments
    if origin in (Union, types.UnionType):
        checks = [_check_of(argument) for argument in arguments]
        if _takes_all in checks:
            return _takes_all
        return lambda value: any(check(value) for check in checks)
    if origin is tuple:
        element = _check_of(arguments[0])
        return lambda value: isinstance(value, (tuple, list)) and all(map(element, value))
    if origin is Mapping:
        element = _check_of(arguments[1])
        if element is _takes_all:
            return lambda value: isinstance(value, Mapping)
        return lambda value: isinstance(value, Mapping) and all(map(element, value.values()))
    if _names_noun(hint):
        return lambda value: isinstance(value, hint) and is_typed(value)
    return _CHECKS.get(hint, _takes_all)  # any JSON


def _takes_all(_: object) -> bool:
    return True


def _is_count(value: Any) -> bool:
    return type(value) is int and abs(value) < 1 << 63


_CHECKS: dict[Any, Check] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: _is_count,
    float: lambda value: _is_count(value) or (type(value) is float and isfinite(value)),
    type(None): lambda value: value is None,
}
