"""Builds Python functions for tools with a schema: with a signature, types and a docstring."""

import inspect
import keyword
import types
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal

_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "null": None,
    "object": dict,
    "array": list,
}
_DEEPEST = 4  # parts below are Any: a signature is read by people
_REST = "more"


def function_of(
    name: str,
    description: str,
    parameters: Mapping[str, Any],
    call: Callable[[dict[str, Any]], Any],
    *,
    defaults: Mapping[str, Any] | None = None,
    returns: object = inspect.Signature.empty,
) -> Callable[..., Any]:
    """Build a function that passes its arguments, by name, to `call`.

    Args:
        name: the function's name.
        description: the beginning of its docstring.
        parameters: the schema of an object, in the subset that `sanitize_parameters` returns.
        call: called as ``call(arguments)``; omitted arguments are not in `arguments`.
        defaults: default values, where they are known.
        returns: the return annotation.
    """
    signature = signature_of(parameters, defaults or {}, returns)

    def function(*args: Any, **kwargs: Any) -> Any:
        return call(bound_arguments(signature, args, kwargs))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _docstring(description, parameters)
    function.__dict__["__signature__"] = signature  # read by inspect
    return function


def bound_arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name, without those that were omitted.

    Raises:
        TypeError: they do not fit the signature.
    """
    bound = dict(signature.bind(*args, **kwargs).arguments)
    rest = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
    more = bound.pop(rest, {})
    return {**bound, **more}


def signature_of(
    parameters: Mapping[str, Any],
    defaults: Mapping[str, Any],
    returns: object = inspect.Signature.empty,
) -> inspect.Signature:
    """Return the signature of a parameters schema: required ones first, others with a default.

    Properties that are no Python identifiers, and additional ones, go by ``**more``.
    """
    properties: Mapping[str, Any] = parameters.get("properties", {})
    required = parameters.get("required", ())
    names = [name for name in properties if name.isidentifier() and not keyword.iskeyword(name)]
    definitions = parameters.get("$defs", {})
    found = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=inspect.Parameter.empty if name in required else defaults.get(name),
            annotation=type_of(properties[name], definitions),
        )
        for name in sorted(names, key=lambda name: name not in required)
    ]
    if len(names) < len(properties) or parameters.get("additionalProperties", False) is not False:
        rest = _REST
        while rest in properties:
            rest += "_"
        found.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(found, return_annotation=returns)


def type_of(schema: object, definitions: Mapping[str, Any], depth: int = 0) -> Any:
    """Return the Python type of a schema of the subset; Any where there is none."""
    if not isinstance(schema, Mapping) or depth >= _DEEPEST:
        return Any
    if "$ref" in schema:
        target = definitions.get(str(schema["$ref"]).removeprefix("#/$defs/"))
        return type_of(target, definitions, depth + 1)
    if "anyOf" in schema:
        return _union([type_of(each, definitions, depth + 1) for each in schema["anyOf"]])
    if schema.get("enum"):
        return Literal[tuple(schema["enum"])]
    if schema.get("type") == "array":
        inner = type_of(schema.get("items"), definitions, depth + 1)
        return list if inner is Any else types.GenericAlias(list, inner)
    return _TYPES.get(str(schema.get("type")), Any)


def _union(members: list[Any]) -> Any:
    kinds = [each for each in members if each is not None]
    if not kinds or Any in kinds:
        return Any
    joined = reduce(or_, kinds)
    return joined | None if len(kinds) < len(members) else joined


def _docstring(description: str, parameters: Mapping[str, Any]) -> str:
    lines = []
    for name, each in parameters.get("properties", {}).items():
        text = each.get("description", "") if isinstance(each, Mapping) else ""
        lines.append(f"    {name}: {' '.join(text.split())}" if text else f"    {name}")
    return "\n".join([description, "", "Args:", *lines]) if lines else description
