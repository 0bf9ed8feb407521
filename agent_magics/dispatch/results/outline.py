"""Outlines a large value in a few lines: its type, its size and its first items.

Law: whatever the value is, this ends soon and raises nothing. It reads a few elements, a few levels
deep, through the builtin types' own methods; a value inside itself is marked.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from types import MemberDescriptorType
from typing import Any

from agent_magics.dispatch.results.values import (
    Types,
    bases_of,
    defines,
    describe_value,
    members_of,
    own_attributes,
    safe_repr,
    type_name,
)

MOST_CHARACTERS = 1_600  # about 400 tokens
_ITEMS, _INNER_ITEMS = 10, 4
_LEVELS = 3
_TEXT, _REPR = 80, 200  # characters of one piece
_LONGEST_NUMBER = 1_000  # bits of an int that is written out
_MOST_PIECES = 20_000  # of a value that is written out whole
_DEEPEST = 60
_MOST_SURE = 300  # pieces that are checked; a value with more counts as one that may run code
_LONGEST_SMALL = 3_000  # characters
REST = "… the rest is left out …"

_SEQUENCES: Mapping[type[Collection[Any]], str] = {
    list: "[]",
    tuple: "()",
    set: "{}",
    frozenset: "{}",
}
_SMALL = Types(float, bool, type(None))
_WHOLE = Types(str, bytes, int, complex) | _SMALL
_LISTED = Types(*_SEQUENCES)


def outline(value: object, most: int = MOST_CHARACTERS) -> str:
    """Return the type, the size and the first items of `value` in at most `most` characters."""
    head = describe_value(value)
    room = max(0, most - len(head) - len(REST) - 2)
    first = _piece(value, _LEVELS, ())
    shown = first if len(first) <= room else f"{first[: max(0, room - 1)]}…"
    return "\n".join((head, shown, REST))[:most]


def is_small(value: Any) -> bool:
    """Return whether `value` is a small value of Python's own types, as nearly all results are.

    It can then be written out whole, and writing it runs no code.
    """
    parts = [value]
    for each in parts:  # which grows meanwhile
        kind = type(each)
        if kind is str:
            if len(each) > _LONGEST_SMALL:
                return False
        elif kind is dict or kind is list or kind is tuple:
            if len(parts) + len(each) > _MOST_SURE:
                return False
            parts += each
            if kind is dict:
                parts += each.values()
        elif kind not in _SMALL and not (kind is int and each.bit_length() <= _LONGEST_NUMBER):
            return False
    return True


def has_more_parts(value: Any, most: int) -> bool:
    """Return whether a value has more than `most` parts in Python's own containers.

    Its JSON then has more characters than that, too.
    """
    parts = [value]
    for each in parts:  # which grows meanwhile
        kind = type(each)
        if kind is dict or kind is list or kind is tuple:
            parts += islice(each, most)
            if kind is dict:
                parts += islice(each.values(), most)
        if len(parts) > most:
            return True
    return False


def can_be_written(value: Any) -> bool:
    """Return whether `value` can be written out whole: limited in size and depth, and finite."""
    waiting = [(value, 0)]
    pieces = characters = 0
    while waiting:
        each, depth = waiting.pop()
        pieces += 1
        kind = type(each)
        if kind is str:
            characters += len(each)
        if pieces > _MOST_PIECES or characters > 1_000_000 or depth > _DEEPEST:
            return False
        if kind is int and each.bit_length() > _LONGEST_NUMBER * 10:
            return False
        if kind in _WHOLE:
            continue
        if defines(kind, "__next__"):  # to read an iterator's values runs it, perhaps for ever
            return False
        try:
            inner = list(islice(_parts_of(each), _MOST_PIECES))
        except RuntimeError:
            return False
        waiting.extend((part, depth + 1) for part in inner)
    return True


def _parts_of(value: Any) -> Iterator[Any]:
    """Yield the items of a container or attributes of a plain object; none of a library's types.

    Raises:
        RuntimeError: another thread changes it, or only the value's own code would tell its parts.
    """
    kind = type(value)
    for base in _SEQUENCES:
        if issubclass(kind, base):
            yield from base.__iter__(value)
            return
    if issubclass(kind, dict):
        for key, each in dict.items(value):
            yield key
            yield each
    elif defines(kind, "__dataclass_fields__") or defines(kind, "__pydantic_fields__"):
        held = own_attributes(value)
        yield from held.values()
        for base in bases_of(kind):
            for name in ("__pydantic_extra__", *members_of(base).get("__dataclass_fields__", ())):
                yield _field_of(value, name, held)


def _field_of(value: Any, name: str, held: Mapping[str, Any]) -> Any:
    """Return a field as it is stored: in a slot, in `held`, or as the class's default."""
    owner = next((each for each in bases_of(type(value)) if name in members_of(each)), None)
    stored = None if owner is None else members_of(owner)[name]
    if type(stored) is MemberDescriptorType:
        with suppress(AttributeError):  # nothing was stored in it
            return stored.__get__(value)
        return None
    is_code = defines(type(stored), "__set__" if name in held else "__get__")
    if is_code:
        raise RuntimeError(f"{name} is computed")
    return held.get(name, stored)


def _piece(value: Any, levels: int, above: tuple[int, ...]) -> str:
    """Return a value as part of an outline; `above` holds the ids of the enclosing containers."""
    kind = type(value)
    if kind is str or kind is bytes:
        return repr(value[:_TEXT]) + ("…" if len(value) > _TEXT else "")
    if kind is int and value.bit_length() > _LONGEST_NUMBER:
        return f"<an int of {value.bit_length():,} bits>"
    if kind in _WHOLE:
        return repr(value)
    if id(value) in above:
        return f"<the {type_name(value)} itself>"
    try:
        if kind is dict or kind in _LISTED:
            return _container(value, levels, (*above, id(value)))
    except RuntimeError:  # another thread changes it
        return f"<a {type_name(value)} that changes>"
    text = safe_repr(value)
    return text if len(text) <= _REPR else f"{text[:_REPR]}…"


def _container(value: Any, levels: int, above: tuple[int, ...]) -> str:
    marks = _SEQUENCES.get(type(value), "{}")
    if not value:
        return "set()" if type(value) in (set, frozenset) else marks
    if not levels:
        return f"{marks[0]}… {len(value):,} …{marks[1]}"
    most = _ITEMS if levels == _LEVELS else _INNER_ITEMS
    if type(value) is dict:
        items = [
            f"{_piece(key, levels - 1, above)}: {_piece(each, levels - 1, above)}"
            for key, each in islice(value.items(), most)
        ]
    else:
        items = [_piece(each, levels - 1, above) for each in islice(value, most)]
    if len(value) > most:
        items.append(f"… {len(value) - most:,} more")
    separator = ",\n " if levels == _LEVELS and type(value) is dict else ", "
    return f"{marks[0]}{separator.join(items)}{marks[1]}"


def is_outline(text: str) -> bool:
    """Return whether a text is the outline of a value."""
    return text.endswith(REST)


def may_run_code(value: object) -> bool:
    """Return whether converting `value` to text may run code that is not Python's own."""
    waiting = [value]
    for _ in range(_MOST_SURE):
        if not waiting:
            return False
        each = waiting.pop()
        if type(each) in _LISTED or type(each) is dict:
            try:
                waiting.extend(islice(_parts_of(each), _MOST_SURE))
            except RuntimeError:
                return True
        elif type(each) not in _WHOLE:
            return True
    return True
