"""Describes simple annotations (str, list[int], Literal, X | None) as schemas, without pydantic."""

import types
import typing
from typing import Any, Union, get_args, get_origin

Schema = dict[str, Any]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}


def describe_annotation(annotation: object) -> tuple[object, Schema] | None:
    """Return the core schema and the JSON schema of `annotation`; None where it is not simple."""
    if isinstance(annotation, type) and annotation in _PLAIN:
        return {"type": annotation.__name__}, {"type": _PLAIN[annotation]}
    if annotation is Any:
        return {"type": "any"}, {}
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Literal:
        return _describe_literal(arguments)
    if origin is list and len(arguments) == 1:
        item = describe_annotation(arguments[0])
        if item is None:
            return None
        return {"type": "list", "items_schema": item[0]}, {"type": "array", "items": item[1]}
    if origin in (Union, types.UnionType):
        return _describe_union(arguments)
    is_described = origin is typing.Annotated and all(
        isinstance(extra, str) or hasattr(extra, "documentation") for extra in arguments[1:]
    )
    return describe_annotation(arguments[0]) if is_described else None


def _describe_literal(values: tuple[object, ...]) -> tuple[object, Schema] | None:
    kinds = set(map(type, values))
    kind = kinds.pop()
    if kinds or kind not in (str, int):
        return None
    return {"type": "literal", "expected": list(values)}, {
        "enum": list(values),
        "type": _PLAIN[kind],
    }


def _describe_union(members: tuple[object, ...]) -> tuple[object, Schema] | None:
    """Describe ``X | None`` and unions of plain types, which differ in JSON."""
    pairs = [describe_annotation(each) for each in members if each is not type(None)]
    schemas = [pair[1] for pair in pairs if pair is not None]
    if len(schemas) < len(pairs) or {} in schemas:
        return None
    if len({schema["type"] for schema in schemas}) < len(schemas):
        return None
    cores = [pair[0] for pair in pairs if pair is not None]
    core = cores[0] if len(cores) == 1 else {"type": "union", "choices": cores}
    if len(pairs) < len(members):
        core, schemas = {"type": "nullable", "schema": core}, [*schemas, {"type": "null"}]
    return core, {"anyOf": schemas}
