"""Turns an output type into columns, and answers into their values."""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any

from pydantic_core import SchemaSerializer, from_json, to_json

from agent_magics.dispatch.schema.generation import describe_written
from agent_magics.engine.results.frames import is_frame_type
from agent_magics.engine.results.structured import OutputType
from agent_magics.protocol.errors import FatalError

ANSWER = "answer"
# The columns that stand after those of the answers.
ERROR, TOKENS, COST = "error", "tokens", "cost"

TAKEN = (
    "output={kind} has a field {name!r}, and the result has a column of that name of its own "
    "(after the fields come error, tokens and cost): rename the field."
)
TWICE = "output={kind} has two fields that would be the column {name!r}: rename one."
NO_FRAME = (
    "output=DataFrame is for one answer that is a table; of a row the answer is one row: take a "
    "pydantic model, a dataclass or a TypedDict with the columns as fields."
)

_SCALARS = {"string", "integer", "number", "boolean"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of answers.

    Attributes:
        name: the field's name; of a nested one with dots ("place.city").
        path: the names that lead to the value inside an answer.
        kind: "string", "integer", "number", "boolean", "date", "datetime", one of them after
            "list of ", or "json" for anything else.
    """

    name: str
    path: tuple[str, ...]
    kind: str


class AnswerColumns:
    """The columns of answers of one type: of what the type writes, with its serializers applied.

    Args:
        kind: the type, as `Agent.run` takes it; None is text.

    Attributes:
        output: checks answers; None for text.
        columns: a column for each field; for a type without fields one, "answer".

    Raises:
        FatalError: `kind` is no type for answers, or a field has the name of another column.
    """

    def __init__(self, kind: Any) -> None:
        if kind is not None and is_frame_type(kind):
            raise FatalError(NO_FRAME)
        output = None if kind is None else OutputType(kind)
        self.output = None if output is None or output.schema is None else output
        self.columns: tuple[Column, ...] = (Column(ANSWER, (), "string"),)
        if self.output is not None:
            self._write = SchemaSerializer(self.output.core).to_python
            self.columns = _columns_of(describe_written(self.output.core))
        names = [column.name for column in self.columns]
        for name in (ERROR, TOKENS, COST):
            if name in names:
                raise FatalError(TAKEN.format(kind=self.output and self.output.name, name=name))
        for name in names:
            if names.count(name) > 1:
                raise FatalError(TWICE.format(kind=self.output and self.output.name, name=name))

    @property
    def of_type(self) -> tuple[tuple[str, str], ...]:
        """Name and kind of what only the type writes, and not the model.

        These are computed fields, other names, and what serializers make of a value.
        """
        if self.output is None:
            return ()
        asked = {
            (ANSWER if self.output.wraps else column.name, column.kind)
            for column in _columns_of(self.output.schema or {})
        }
        written = {(column.name, column.kind) for column in self.columns}
        return tuple(sorted(written - asked))

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """JSON schema of an answer; None for text."""
        return None if self.output is None else self.output.schema

    def read(self, text: str) -> bytes:
        """Return a checked answer as JSON, with defaults and conversions of the type applied.

        Raises:
            RespondToModel: the answer does not fit the type; the message has all problems.
            FatalError: a validator of the type failed itself.
        """
        if self.output is None:
            # No table holds half of a surrogate pair.
            return to_json(text.encode("utf-8", "replace").decode())
        value = self.output.read(text)
        # Not in one step, in which a model's numbers without end become null.
        return to_json(self._write(value, mode="json", by_alias=True, warnings=False))

    def fits(self, answer: bytes) -> bool:
        """Tell whether a kept answer can be of this type: a file that was given may hold any."""
        if self.output is None:
            return answer.startswith(b'"')
        return not self.columns[0].path or answer.startswith((b"{", b"null"))

    def failure(self, problems: str) -> str:
        """Return the error of a row whose answer does not fit, also after it was corrected."""
        return problems if self.output is None else self.output.failure(problems)


def column_values(
    columns: Sequence[Column], answers: Sequence[bytes | None]
) -> dict[str, list[Any]]:
    """Return the columns of some answers, with None where there is none.

    Args:
        columns: the columns.
        answers: what `AnswerColumns.read` returned, in the order of the rows.
    """
    written = [answer or b"null" for answer in answers]
    try:
        parsed = from_json(b"[" + b",".join(written) + b"]", cache_strings="keys")
    except ValueError:  # in a list an answer may be nested one level too deep
        parsed = [from_json(answer, cache_strings="keys") for answer in written]
    return {column.name: _values_of(column, parsed) for column in columns}


def _values_of(column: Column, answers: list[Any]) -> list[Any]:
    values = answers
    for name in column.path:
        values = [value.get(name) if isinstance(value, dict) else None for value in values]
    if read := _READ.get(column.kind.removeprefix("list of ")):
        if column.kind.startswith("list of "):
            values = [list(map(read, each)) if isinstance(each, list) else None for each in values]
        else:
            values = list(map(read, values))
    if column.kind == "datetime" and any(map(_has_zone, values)):
        return list(map(_in_utc, values))
    return values


# What follows makes every value one of its column: answers in a file that was given, and those of
# types that write other things than they say, may be of any kind.


def _time_of(parse: Callable[[str], date], value: Any) -> Any:
    try:
        return parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _truth_of(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole_of(value: Any) -> int | None:
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return int(value) if is_whole else None


def _number_of(value: Any) -> float | None:
    """Return a number as the nearest float, which all libraries have; None beyond them."""
    try:
        return float(value) if type(value) in (int, float) else None
    except OverflowError:
        return None


def _has_zone(value: datetime | None) -> bool:
    return value is not None and value.tzinfo is not None


def _in_utc(value: datetime | None) -> datetime | None:
    """Return a time in UTC; one without a zone is taken for that. No column holds several zones."""
    if value is None or value.tzinfo is None:
        return value and value.replace(tzinfo=UTC)
    try:
        return value.astimezone(UTC)
    except OverflowError:  # before the year 1, or after 9999
        return None


def is_answer(answer: object) -> bool:
    """Tell whether this is an answer as `AnswerColumns.read` returns it."""
    if not isinstance(answer, bytes):
        return False
    try:
        from_json(answer)
    except ValueError:
        return False
    return True


def as_text(value: Any) -> str | None:
    """Return a value of the kind "json" as text, for tables that need one type a column.

    Text (of a Decimal, or of ``int | str``) stays as it is; all else is written as JSON.
    """
    return (
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    )


_READ: dict[str, Callable[[Any], Any]] = {
    "string": as_text,
    "integer": _whole_of,
    "number": _number_of,
    "boolean": _truth_of,
    "date": partial(_time_of, date.fromisoformat),
    "datetime": partial(_time_of, datetime.fromisoformat),
}


# -- a schema's fields -----------------------------------------------------------------------------


def _columns_of(schema: Mapping[str, Any]) -> tuple[Column, ...]:
    root = _resolved(schema, schema)
    if root.get("properties"):
        return tuple(_fields(root, schema, ()))
    return (Column(ANSWER, (), _kind_of(root, schema)),)


def _fields(schema: Mapping[str, Any], whole: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Yield the columns of an object's fields, and of those of the objects inside it."""
    for name, given in schema["properties"].items():
        field, place = _resolved(given, whole), (*path, name)
        if field.get("type") == "object" and field.get("properties") and len(place) < _DEEPEST:
            yield from _fields(field, whole, place)
        else:
            yield Column(".".join(place), place, _kind_of(given, whole))


# Types may hold themselves; below this depth a field is one column.
_DEEPEST = 8


def _resolved(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema without reference, and without "or null"."""
    members = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    schema = members[0] if len(members) == 1 else schema
    name = schema.get("$ref", "").removeprefix("#/$defs/")
    return _resolved(whole["$defs"][name], whole) if name else schema


def _kind_of(given: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    schema = _resolved(given, whole)
    types = _types_of(given, whole) - {"null"}
    if types == {"string"}:
        form = schema.get("format", "").replace("-", "")
        return form if form in ("date", "datetime") else "string"
    if types == {"array"}:
        items = _types_of(schema.get("items", {}), whole) - {"null"}
        return f"list of {_scalar(items)}" if _scalar(items) else "json"
    return _scalar(types) or "json"


def _scalar(types: Set[str]) -> str:
    """Return the one kind of column that holds values of these types; "" for none."""
    if types == {"integer", "number"}:
        return "number"
    return next(iter(types)) if len(types) == 1 and types <= _SCALARS else ""


def _types_of(given: Mapping[str, Any], whole: Mapping[str, Any]) -> Set[str]:
    """Return JSON's types of the values of a schema; of the default, too, which nobody checks."""
    schema = _resolved(given, whole)
    types = {_type_name(given["default"])} if "default" in given else set[str]()
    if members := schema.get("anyOf") or schema.get("oneOf"):
        return types.union(*(_types_of(member, whole) for member in members))
    if "enum" in schema or "const" in schema:
        return types.union(map(_type_name, schema.get("enum") or [schema["const"]]))
    return types | {str(schema.get("type", "any"))}


def _type_name(value: object) -> str:
    """Return JSON's name of a value's type."""
    return _TYPE_NAMES.get(type(value), "any")


_TYPE_NAMES = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null",
    list: "array", dict: "object",
}  # fmt: skip
