"""Events, ops and items to JSON and back, by their own type hints; one place for all of them.

The JSON of a noun is its fields, under ``"type"`` its class name. Reading is strict: an unknown
type or field is an error that names it, because a rollout is read by people who need to know.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from agent_magics.protocol import events, items, ops
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Json

# JSON as it stands; asked by type, since every event comes through here.
_PLAIN = frozenset((str, int, float, bool, type(None)))

Decoder = Callable[[Any], Any]

NOUNS: dict[str, type] = {
    name: kind
    for module in (items, events, ops)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and is_dataclass(kind)
}


def to_json(noun: Any) -> dict[str, Json]:
    """Return `noun` as a JSON object; the inverse of `from_json`."""
    kind = type(noun)
    encoded: dict[str, Json] = {"type": kind.__name__}
    for name in _field_names(kind):
        value = getattr(noun, name)
        # Asked here, since a call more for each field of each event is a third of the work.
        encoded[name] = value if type(value) in _PLAIN else _encode(value)
    return encoded


def from_json(data: Mapping[str, Json]) -> Any:
    """Return the event, op or item that `data` describes.

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
        raise FatalError(f"A record of type {kind.__name__} does not fit: {error}.") from None


@cache
def _field_names(kind: type) -> tuple[str, ...]:
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
    return value  # a tool's details may hold anything; the writer makes text of it


@cache
def _decoders(kind: type) -> dict[str, Decoder]:
    return {name: _decoder_of(hint) for name, hint in get_type_hints(kind).items()}


def _decoder_of(hint: Any) -> Decoder:
    """Choose how a field is read back: nouns by their tag, tuples from lists, the rest as it is."""
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


def _names_noun(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


def _decode_noun(value: Any) -> Any:
    return from_json(value) if isinstance(value, Mapping) else value


def _unchanged(value: Any) -> Any:
    return value
