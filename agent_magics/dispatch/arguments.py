"""The model's JSON as Python arguments, and words for what does not fit."""

import difflib
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_magics.dispatch.annotations import Schema
from agent_magics.dispatch.handles import is_handle
from agent_magics.dispatch.output import safe_repr
from agent_magics.dispatch.schema import HANDLE, describe
from agent_magics.dispatch.signature import name_of, read_parameters
from agent_magics.dispatch.values import describe_value
from agent_magics.protocol.errors import RespondToModel

_CORE_CONFIG: Any = {"coerce_numbers_to_str": True, "extra_fields_behavior": "forbid"}
_SHOWN_PROBLEMS = 30
_SHOWN_CHARACTERS = 60


class ArgumentBinder:
    """Turns arguments as a model sends them into what the function takes; built at the first use.

    Values are read generously ("5" for an int, 5 for a str) and arrive as the annotated types:
    Enum members, dates, paths, dataclasses. Null for a parameter with a default counts as absent.
    """

    def __init__(self, fn: Callable[..., Any], name: str | None = None):
        """Remember the function.

        Args:
            fn: the function; it is looked at when the first arguments come.
            name: what messages call it, if not its own name.
        """
        self._fn = fn
        self._name = name or name_of(fn)
        self._validator: Any = None
        self._schema: Schema = {}
        self._positional: list[str] = []

    def bind_json(
        self, text: str, value_of: Callable[[str], Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs for the function from JSON text, the model's own words.

        Args:
            text: a JSON object.
            value_of: returns the object kept under a name such as ``@r7``, or raises
                RespondToModel. Where a parameter takes no text, the object itself arrives.

        Raises:
            RespondToModel: the text is not a JSON object, or does not fit; names all problems.
            FatalError: the function has a parameter that JSON cannot fill.
        """
        if self._validator is None:
            self._build()
        if text[:1] != "{":
            text = self._object_text(text)
        if value_of is not None and '"@r' in text:
            given = _Kept(self._schema, value_of).put_into(self._parse(text))
            if given.names:
                return self._bind_kept(given)
        try:
            bound = self._validator.validate_json(text)
        except ValueError as error:
            bound = self._bind_again(error, functools.partial(self._parse, text), text)
        return self._place(bound) if self._positional else bound

    def bind(self, mapping: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs for the function from values by name.

        Raises:
            RespondToModel: the values do not fit; the message names all problems.
            FatalError: the function has a parameter that JSON cannot fill.
        """
        if self._validator is None:
            self._build()
        given = mapping if type(mapping) is dict else dict(mapping)
        try:
            bound = self._validator.validate_python(given)
        except ValueError as error:
            bound = self._bind_again(error, lambda: given, None)
        return self._place(bound) if self._positional else bound

    def _bind_kept(self, kept: "_Kept") -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bind arguments some of which are kept objects; those arrive as themselves, uncopied."""
        try:
            bound = self._validator.validate_python(kept.given)
        except ValueError as error:
            bound = self._bind_again(error, lambda: kept.given, None, kept.names)
        _, named = bound
        for name, value in kept.given.items():
            # Validation copies lists and dicts.
            if id(value) in kept.names and type(named.get(name)) is type(value):
                named[name] = value
        return self._place(bound) if self._positional else bound

    def _build(self) -> None:
        from pydantic_core import SchemaValidator  # noqa: PLC0415 - heavy

        core, self._schema = describe(self._fn)
        self._positional = [p.name for p in read_parameters(self._fn) if p.is_positional]
        self._validator = SchemaValidator(core, config=_CORE_CONFIG)

    def _place(self, bound: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Move positional-only parameters, which the model passes by name, to their places."""
        _, named = bound
        return tuple(named.pop(name) for name in self._positional), named

    def _bind_again(
        self,
        error: ValueError,
        parse: Callable[[], Any],
        text: str | None,
        names: Mapping[int, str] = {},
    ) -> Any:
        """Try once more without the nulls that were refused, else tell what is wrong."""
        from pydantic_core import ValidationError, to_json  # noqa: PLC0415 - heavy

        if not isinstance(error, ValidationError):
            raise error
        given = parse()
        nulls = {_locate(p, given)[0] for p in error.errors() if p["input"] is None}
        if nulls:
            given = _drop(given, (), nulls)
            try:
                if text is None:
                    return self._validator.validate_python(given)
                again = to_json(given, inf_nan_mode="constants")
                return self._validator.validate_json(again)
            except ValidationError as second:
                error = second
        problems = error.errors(include_url=False)
        told = _explain(problems, given, nulls, self._schema, self._name, names)
        raise RespondToModel(told) from None

    def _object_text(self, text: str) -> str:
        """Return text that does not begin with a brace as that of an object, or say what it is."""
        stripped = text.strip()
        if not stripped:
            return "{}"
        if stripped[0] != "{":
            value = self._parse(text)
            raise RespondToModel(
                f"The arguments of {self._name} must be one JSON object, got {_show(value)}. "
                "Nothing was run; send them again as an object of names and values."
            )
        return text

    def _parse(self, text: str) -> Any:
        from pydantic_core import from_json  # noqa: PLC0415 - heavy

        try:
            return from_json(text)
        except TypeError:  # half a character, which no UTF-8 text can hold
            raise RespondToModel(
                f"The arguments of {self._name} are not valid Unicode: they hold half a character "
                "(a lone surrogate). Nothing was run; send the whole arguments again."
            ) from None
        except ValueError as error:
            raise RespondToModel(_explain_syntax(str(error), text, self._name)) from None


def _explain_syntax(problem: str, text: str, name: str) -> str:
    """Say where the text stops being JSON, with the words around that place."""
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


# -- telling what does not fit -------------------------------------------------------------------

# What was sent is no object of the type that is wanted, or is JSON and no object at all.
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


def _explain(
    problems: Sequence[Any],
    given: Any,
    nulls: set[tuple[Any, ...]],
    schema: Schema,
    name: str,
    names: Mapping[int, str],
) -> str:
    """Tell all problems, one per line; what a union refused for several reasons is one problem."""
    lines: dict[tuple[Any, ...], list[str]] = {}
    shown: dict[tuple[Any, ...], str] = {}
    for problem in problems:
        place, as_type = _locate(problem, given)
        key = (*place, as_type)
        if problem["type"] in _MISSING_OR_EXTRA:
            got = "null" if place in nulls else "nothing (required)"
            lines[key] = [_explain_key(problem, place, schema, name, got)]
            continue
        words = _expectation(problem)
        if problem["type"] in _NO_OBJECT:
            words = "expected " + _handle_words(_schema_at(schema, place), schema)
        if words not in lines.setdefault(key, []):
            lines[key].append(words)
        value = problem["input"]
        held = names.get(id(value))
        shown.setdefault(key, f"{held}, a {describe_value(value)}" if held else _show(value))
    told = []
    for key, words in lines.items():
        path = _path_words(key[:-1]) + (f" (as {key[-1]})" if key[-1] else "")
        got = f", got {shown[key]}" if key in shown else ""
        told.append(f"{path}: {_join(words)}{got}")
    if len(told) > _SHOWN_PROBLEMS:
        told[_SHOWN_PROBLEMS:] = [f"… and {len(told) - _SHOWN_PROBLEMS} more problems"]
    return "\n".join(told)


def _join(words: Sequence[str]) -> str:
    """Join what the members of a union expected: "expected an integer or an array"."""
    return " or ".join([words[0], *(each.removeprefix("expected ") for each in words[1:])])


def _locate(problem: Any, given: Any) -> tuple[tuple[Any, ...], str]:
    """Return the path to what was refused, and the member of a union it was read as, or "".

    Pydantic's location also names union members and validators; they are not in the arguments.
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


def _has(given: Any, part: Any) -> bool:
    if isinstance(given, Mapping):
        return part in given
    return isinstance(given, (list, tuple)) and isinstance(part, int) and part < len(given)


def _path_words(place: Sequence[Any]) -> str:
    words = ""
    for part in place:
        words += f"[{part}]" if isinstance(part, int) else f".{part}"
    return words.lstrip(".") or "the arguments"


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
        expected = _schema_words(_schema_at(schema, place), schema)
        return f"expected {expected}, got {got}"
    owner = _schema_at(schema, place[:-1]) or {}
    names = list(owner.get("properties", {}))
    near = difflib.get_close_matches(str(place[-1]), names, n=1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    whose = f"not a parameter of {name}" if len(place) == 1 else "not a field of this object"
    return f"{whose}{meant}; it takes: {', '.join(names) or 'nothing'}"


def _follow(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref", "")
    found: Schema = root.get("$defs", {}).get(reference.removeprefix("#/$defs/"), schema)
    return found


def _schema_at(root: Schema, place: Sequence[Any]) -> Schema | None:
    """Return the schema of what stands at `place`; the first that fits in a union."""
    candidates = [root]
    for part in place:
        opened = [_follow(each, root) for each in candidates]
        opened += [_follow(each, root) for one in opened for each in one.get("anyOf", ())]
        candidates = [step for each in opened if (step := _step(each, part)) is not None]
    return _follow(candidates[0], root) if candidates else None


def _step(schema: Schema, part: Any) -> Schema | None:
    if isinstance(part, int):
        heads = schema.get("prefixItems", ())
        return heads[part] if part < len(heads) else schema.get("items")
    inner = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return inner if isinstance(inner, dict) else None


def _schema_words(schema: Schema | None, root: Schema) -> str:
    """Say in a few words what a schema asks for."""
    schema = _follow(schema or {}, root)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_schema_words(each, root) for each in schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    words = _ARTICLES.get(schema.get("type", ""), "a value")
    return _FORMATS.get(schema.get("format", ""), words)


def _handle_words(schema: Schema | None, root: Schema) -> str:
    """Say of which type the object has to be."""
    opened = [schema or {}, *_follow(schema or {}, root).get("anyOf", ())]
    words = next((s.get("description", "") for s in opened if s.get("format") == HANDLE), "")
    found = re.search(r"a handle, such as @r7, of a kept (\S+?)\)?$", words)
    return f"a handle of a kept {found[1]}, such as @r7" if found else "a handle such as @r7"


def _show(value: Any) -> str:
    """Show a refused value with its JSON type, shortened."""
    if value is None:
        return "null"
    kind = _json_type(value)
    if kind in ("array", "object", "boolean", "number"):
        text = json.dumps(value, ensure_ascii=False, default=safe_repr, skipkeys=True)
    else:
        text = safe_repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = text[: _SHOWN_CHARACTERS - 1] + "…"
    return f"{text} ({kind})"


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = ((str, "string"), ((int, float), "number"), ((list, tuple), "array"))
    found = next((name for kind, name in names if isinstance(value, kind)), None)
    return found or ("object" if isinstance(value, dict) else type(value).__name__)


class _Kept:
    """Arguments in which names of kept results are replaced by the objects they stand for.

    Attributes:
        given: the arguments.
        names: id of a kept object in them -> its name.
    """

    def __init__(self, schema: Schema, value_of: Callable[[str], Any]) -> None:
        self._schema = schema
        self._value_of = value_of
        self.given: dict[str, Any] = {}
        self.names: dict[int, str] = {}

    def put_into(self, parsed: Any) -> "_Kept":
        """Take the arguments as the model wrote them."""
        if isinstance(parsed, dict):
            self.given = self._replace(parsed, ())
        return self

    def _replace(self, value: Any, place: tuple[Any, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._replace(each, (*place, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self._replace(each, (*place, n)) for n, each in enumerate(value)]
        if not (isinstance(value, str) and is_handle(value)):
            return value
        wanted = self._wanted(place, value)
        if wanted == "text":  # a path, say: the tool itself knows what to do with a name
            return value
        try:
            kept = self._value_of(value)
        except RespondToModel:
            if wanted == HANDLE:
                raise
            return value  # text that only looks like a name
        self.names[id(kept)] = value
        return kept

    def _wanted(self, place: tuple[Any, ...], name: str) -> str:
        """Return "handle" where an object is wanted, "text" where the name itself is, else ""."""
        found = _schema_at(self._schema, place)
        if found is None:
            return ""
        members = [_follow(each, self._schema) for each in found.get("anyOf", [found])]
        if any(each.get("format") == HANDLE for each in members):
            return HANDLE
        return "text" if any(_takes_text(each, name) for each in members) else ""


def _takes_text(schema: Schema, name: str) -> bool:
    """Tell whether the name itself would do: for a text or a path, not for a date."""
    if "enum" in schema:
        return name in schema["enum"]
    return schema.get("type") == "string" and schema.get("format", "path") == "path"


def _drop(value: Any, place: tuple[Any, ...], refused: set[tuple[Any, ...]]) -> Any:
    """Return a copy of the arguments without the nulls at the `refused` places."""
    if isinstance(value, dict):
        return {
            key: _drop(each, (*place, key), refused)
            for key, each in value.items()
            if each is not None or (*place, key) not in refused
        }
    if isinstance(value, list):
        return [_drop(each, (*place, number), refused) for number, each in enumerate(value)]
    return value
