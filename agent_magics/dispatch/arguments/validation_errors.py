"""Formats validation errors of arguments: every problem at once, each with its place.

Law: a line says where, what was expected, and what was there instead.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_magics.dispatch.results.values import describe_value, safe_repr
from agent_magics.dispatch.schema.annotations import Schema
from agent_magics.dispatch.schema.generation import HANDLE
from agent_magics.dispatch.schema.path import follow_reference, schema_at
from agent_magics.text.brief import brief

_SHOWN_PROBLEMS = 30
_SHOWN_CHARACTERS = 60

# Errors of values that are not an object of the expected type.
_NO_OBJECT = frozenset(("is_instance_of", "needs_python_object"))
_MISSING = frozenset(("missing", "missing_argument", "missing_keyword_only_argument"))
_EXTRA = frozenset(("unexpected_keyword_argument", "extra_forbidden"))
_MISSING_OR_EXTRA = _MISSING | _EXTRA | {"missing_positional_only_argument"}

# Pydantic's error types to what was expected; a prefix ends in "_".
_EXPECTED = {
    "int_": "an integer",
    "float_": "a number",
    "finite_number": "a finite number",
    "string_too_short": "a string of at least {min_length} characters",
    "string_too_long": "a string of at most {max_length} characters",
    "string_pattern_mismatch": "a string matching {pattern}",
    "string_": "a string",
    "bool_": "true or false",
    "list_": "an array",
    "tuple_": "an array",
    "set_": "an array",
    "frozen_set_": "an array",
    "named_tuple_": "an array or an object",
    "too_short": "at least {min_length} elements",
    "too_long": "at most {max_length} elements",
    "dict_": "an object",
    "mapping_": "an object",
    "model_": "an object",
    "dataclass_": "an object",
    "none_required": "null",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "less_than": "a number < {lt}",
    "less_than_equal": "a number <= {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "datetime_": "a date and time such as 2024-03-31T12:00:00",
    "date_": "a date such as 2024-03-31",
    "time_delta_": "a duration such as PT1H30M",
    "time_": "a time such as 12:30:00",
    "uuid_": "a UUID",
    "decimal_": "a decimal number",
    "path_": "a path",
}
_FORMATS = {
    "date-time": _EXPECTED["datetime_"],
    "date": _EXPECTED["date_"],
    "duration": _EXPECTED["time_delta_"],
    "time": _EXPECTED["time_"],
    "uuid": "a UUID",
    "path": "a path",
    HANDLE: "a handle such as @r7",
}
_ARTICLES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
}


def explain_errors(
    problems: Sequence[Any],
    given: object,
    nulls: set[tuple[Any, ...]],
    schema: Schema,
    name: str,
    names: Mapping[int, str],
) -> str:
    """Return a message with all problems, one per line; the errors of a union are one problem.

    Args:
        problems: pydantic's errors.
        given: the arguments.
        nulls: places of nulls that were dropped.
        schema: the JSON schema of the arguments.
        name: the function's name in the message.
        names: id of a stored object in the arguments -> its name.
    """
    lines: dict[tuple[Any, ...], list[str]] = {}
    shown: dict[tuple[Any, ...], str] = {}
    for problem in problems:
        place, as_type = locate_problem(problem, given)
        key = (*place, as_type)
        if problem["type"] in _MISSING_OR_EXTRA:
            got = "null" if place in nulls else "nothing (required)"
            lines[key] = [_explain_key(problem, place, schema, name, got)]
            continue
        expectation = _expectation(problem)
        if problem["type"] in _NO_OBJECT:
            expectation = "expected " + _handle_words(schema_at(schema, place), schema)
        if expectation not in lines.setdefault(key, []):
            lines[key].append(expectation)
        value = problem["input"]
        held = names.get(id(value))
        shown.setdefault(key, f"{held}, a {describe_value(value)}" if held else show_value(value))
    messages = []
    for key, expected in lines.items():
        path = _path_words(key[:-1]) + (f" (as {key[-1]})" if key[-1] else "")
        got = f", got {shown[key]}" if key in shown else ""
        messages.append(f"{path}: {_join(expected)}{got}")
    if len(messages) > _SHOWN_PROBLEMS:
        messages[_SHOWN_PROBLEMS:] = [f"… and {len(messages) - _SHOWN_PROBLEMS} more problems"]
    return "\n".join(messages)


def _join(parts: Sequence[str]) -> str:
    """Join the parts of a union's members: "expected an integer or an array"."""
    return " or ".join([parts[0], *(each.removeprefix("expected ") for each in parts[1:])])


def locate_problem(problem: Any, given: Any) -> tuple[tuple[Any, ...], str]:
    """Return the path to the refused value, and the union member it was read as, or "".

    Pydantic's location also names union members and validators, which are not in the arguments.
    """
    place: list[Any] = []
    as_type, skipped = "", ""
    location = problem["loc"]
    for number, part in enumerate(location, start=1):
        is_last = number == len(location)
        if _has(given, part):
            given = given[part]
        elif part == "[key]":
            place[-1] = f"key {place[-1]!r}"
            continue
        elif not (is_last and problem["type"] in _MISSING_OR_EXTRA):
            skipped = part if isinstance(part, str) else skipped
            continue
        as_type, skipped = skipped or as_type, ""
        place.append(part)
    return tuple(place), as_type if as_type.isidentifier() else ""


def _has(given: object, part: object) -> bool:
    if isinstance(given, Mapping):
        return part in given
    return isinstance(given, (list, tuple)) and isinstance(part, int) and part < len(given)


def _path_words(place: Sequence[Any]) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".") or "the arguments"


def _expectation(problem: Any) -> str:
    kind, context = problem["type"], problem.get("ctx", {})
    template = _EXPECTED.get(kind)
    if template is None:
        family = next((p for p in _EXPECTED if p[-1] == "_" and kind.startswith(p)), None)
        template = _EXPECTED[family] if family else None
    if template is not None:
        return "expected " + template.format(**context)
    message: str = problem["msg"]
    if kind in ("value_error", "assertion_error"):
        return message.partition(", ")[2] or message
    if message.startswith("Input should be "):
        return "expected " + message.removeprefix("Input should be ")
    return message[:1].lower() + message[1:]


def _explain_key(problem: Any, place: tuple[Any, ...], schema: Schema, name: str, got: str) -> str:
    if problem["type"] not in _EXTRA:
        expected = _schema_words(schema_at(schema, place), schema)
        return f"expected {expected}, got {got}"
    owner = schema_at(schema, place[:-1]) or {}
    names = list(owner.get("properties", {}))
    near = difflib.get_close_matches(str(place[-1]), names, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    subject = f"not a parameter of {name}" if len(place) == 1 else "not a field of this object"
    return f"{subject}{meant}; it takes: {', '.join(names) or 'nothing'}"


def _schema_words(schema: Schema | None, root: Schema) -> str:
    """Describe in a few words which values a schema accepts."""
    schema = follow_reference(schema or {}, root)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_schema_words(each, root) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    text = _ARTICLES.get(schema.get("type", ""), "a value")
    return _FORMATS.get(schema.get("format", ""), text)


def _handle_words(schema: Schema | None, root: Schema) -> str:
    """Describe the type of stored object that a schema accepts."""
    opened = [schema or {}, *follow_reference(schema or {}, root).get("anyOf", ())]
    description = next((s.get("description", "") for s in opened if s.get("format") == HANDLE), "")
    found = re.search(r"a handle, such as @r7, of a kept (\S+?)\)?$", description)
    return f"a handle of a kept {found[1]}, such as @r7" if found else "a handle such as @r7"


def show_value(value: object) -> str:
    """Return a refused value as text with its JSON type, shortened."""
    if value is None:
        return "null"
    kind = _json_type(value)
    if kind in ("array", "object", "boolean", "number"):
        text = json.dumps(value, ensure_ascii=False, default=safe_repr, skipkeys=True)
    else:
        text = safe_repr(value)
    return f"{brief(text, _SHOWN_CHARACTERS)} ({kind})"


def _json_type(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = ((str, "string"), ((int, float), "number"), ((list, tuple), "array"))
    found = next((name for kind, name in names if isinstance(value, kind)), None)
    return found or ("object" if isinstance(value, dict) else type(value).__name__)


def explain_syntax(problem: str, text: str, name: str) -> str:
    """Describe where the text stops being valid JSON, with the text around that place."""
    found = re.fullmatch(r"(.*) at line (\d+) column (\d+)", problem, re.DOTALL)
    what, line, column = (found[1], int(found[2]), int(found[3])) if found else (problem, 1, 0)
    before = sum(map(len, text.split("\n")[: line - 1])) + line - 1
    # Columns are counted in bytes.
    rest = text[before:].encode("utf-8", "surrogatepass")[:column]
    column = len(rest.decode("utf-8", "ignore"))
    offset = before + column
    cut = what.startswith("EOF")
    is_what = "are cut short" if cut else "are not valid JSON"
    around = f"{text[max(offset - 40, 0) : offset]}<HERE>{text[offset : offset + 20]}"
    return (
        f"The arguments of {name} {is_what}: {what} at line {line}, column {column} "
        f"(character {offset}): {around}\nNothing was run; send the whole arguments again."
    )
