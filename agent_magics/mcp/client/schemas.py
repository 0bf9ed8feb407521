"""Checks which tools of a server can be offered: schemas of limited size and without endless
references.

Merely unusual schemas are normalised elsewhere; rejected here are those that would make the
normalisation, or a request to a model, take unbounded time.
"""

from collections.abc import Mapping, Sequence

from agent_magics.protocol.items import at_pointer

MOST_TOOLS = 1_000  # of one server
MOST_OF_ONE = 256 * 1024  # characters of a tool's description and schemas, roughly
MOST_OF_ALL = 8 * 1024 * 1024  # of all tools of one server
_DEEPEST = 64
_LONGEST_NAME = 256  # characters
_PER_PART = 4  # quotes, a comma, a colon


def measure(value: object, most: int) -> int | None:
    """Return the approximate length of `value` as JSON; None if it exceeds `most` characters.

    It stops there, so that the time is bounded by `most`.

    Raises:
        RecursionError: it is nested deeper than `_DEEPEST`.
    """
    size = 0
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > _DEEPEST:
            raise RecursionError
        size += _PER_PART
        if isinstance(part, str):
            size += len(part)
        elif isinstance(part, Mapping):
            size += sum(map(len, part))
            waiting += [(each, depth + 1) for each in part.values()]
        elif isinstance(part, Sequence):
            waiting += [(each, depth + 1) for each in part]
        if size + _PER_PART * len(waiting) > most:
            return None
    return size


def is_within(value: object, most: int) -> bool:
    """Tell whether `value` is neither longer than `most` characters nor nested too deeply."""
    try:
        return measure(value, most) is not None
    except RecursionError:
        return False


def endless_reference(schema: object) -> str:
    """Return a `$ref` whose chain of references never reaches a schema; "" without one.

    A recursive type is not one: between its references there is an object.
    """
    fine = set[str]()  # chains of references join, so each is followed once
    for reference in _references(schema):
        seen = set[str]()
        here: object = reference
        while isinstance(here, str) and here.startswith("#") and here not in fine:
            if here in seen:
                return here
            seen.add(here)
            target = at_pointer(schema, here)
            here = target.get("$ref") if isinstance(target, Mapping) else None
            if isinstance(target, Mapping) and "properties" in target:
                break
        fine |= seen
    return ""


def why_too_large(tool: object) -> str:
    """Return why a tool, as it is listed, is too large to be looked at; "" where it is not."""
    try:
        size = measure(tool, MOST_OF_ONE)
    except RecursionError:
        return f"its schema is nested more than {_DEEPEST} deep"
    if size is None:
        return f"its description and schemas have more than {MOST_OF_ONE // 1024} KB"
    return ""


def why_left_out(name: str, parts: Sequence[object], room: int) -> tuple[str, int]:
    """Return why a tool cannot be offered, "" where it can; and its size in characters.

    Args:
        name: of the tool.
        parts: its description and its schemas.
        room: characters that are left for the server's tools.
    """
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        return "its name is empty, too long, or not printable", 0
    if why := why_too_large(parts):
        return why, 0
    size = measure(parts, MOST_OF_ONE) or 0
    if size > room:
        return f"all tools together have more than {MOST_OF_ALL // 1024 // 1024} MB", 0
    for part in parts:
        if reference := endless_reference(part):
            return f"its schema refers to itself without end ($ref {reference[:100]})", 0
    return "", size


def _references(schema: object) -> list[str]:
    found: list[str] = []
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            if isinstance(part.get("$ref"), str):
                found.append(part["$ref"])
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
    return found
