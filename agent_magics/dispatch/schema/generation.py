"""Generates a function's parameters as JSON schema for the model, and as pydantic's core schema.

Simple annotations are described directly; all others by pydantic, which is imported only then. Both
ways give the same schema.
"""

import functools
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args, get_origin

from agent_magics.dispatch.results.values import safe_repr
from agent_magics.dispatch.schema.annotations import Schema
from agent_magics.dispatch.schema.signature import Parameter, name_of, once_each, read_parameters
from agent_magics.protocol.errors import FatalError, short_message

# Keywords that the provider enforces in strict mode; all others are either described to
# the model in words (DESCRIBED) or makes a schema unfit for strict mode.
STRICT_TYPES = frozenset(("boolean", "string", "number", "integer", "array", "object", "null"))
STRICT_KEYWORDS = frozenset(
    ("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref")
) | {"$defs", "description", "title", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
STRICT_KEYWORDS |= {"multipleOf", "minItems", "maxItems"}
DESCRIBED = frozenset(
    (
        "default",
        "minLength",
        "maxLength",
        "uniqueItems",
        "format",
        "pattern",
        "examples",
        "deprecated",
    )
)

_LEAVES = STRICT_TYPES - {"array", "object"}
_KNOWN_KEYWORDS = STRICT_KEYWORDS | DESCRIBED

_CONFIG: Any = {"coerce_numbers_to_str": True, "extra": "forbid", "arbitrary_types_allowed": True}

# Of a parameter that takes a Python object (a table, an array, a model): the model sends the name
# of a kept result, and the object itself arrives.
HANDLE = "handle"


def derive_parameters(fn: Callable[..., Any]) -> tuple[Schema, bool, str]:
    """Return the JSON schema of a function's parameters and whether strict mode fits it.

    Args:
        fn: any callable with a signature; a parameter annotated `ToolContext` is left out.

    Returns:
        The schema (an object; parameters without default are required), strict, and the reason why
        strict is False, or "".

    Raises:
        FatalError: a parameter cannot be filled from JSON; says which, and what to write instead.
    """
    _, schema = describe(fn)
    reason = _strict_obstacle(schema, "")
    return schema, not reason, reason


# -- from parameters to schemas --------------------------------------------------------------------


@once_each
def describe(fn: Callable[..., Any]) -> tuple[Any, Schema]:
    """Return pydantic's core schema of the arguments, and their JSON schema."""
    parameters = read_parameters(fn)
    return _describe_simple(parameters) or _describe_with_pydantic(fn, parameters)


def _object_schema(
    properties: Schema, required: list[str], additional: object, defs: Schema
) -> Schema:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": additional,
    }
    return {**schema, "$defs": defs} if defs else schema


def _describe_simple(parameters: Sequence[Parameter]) -> tuple[Any, Schema] | None:
    """Describe the parameters without pydantic, or return None where one is not simple.

    A core schema is a plain dictionary; `pydantic_core.core_schema` documents the keys.
    """
    arguments, properties, required = [], {}, []
    for parameter in parameters:
        if parameter.is_rest or parameter.simple is None:
            return None
        core, schema = parameter.simple
        if parameter.is_required:
            required.append(parameter.name)
        elif _is_json(parameter.default):
            core = {"type": "default", "schema": core, "default": parameter.default}
            schema = {**schema, "default": parameter.default}
        else:
            return None
        if parameter.description:
            schema = {**schema, "description": parameter.description}
        arguments.append({"name": parameter.name, "mode": "keyword_only", "schema": core})
        properties[parameter.name] = schema
    core = {"type": "arguments", "arguments_schema": arguments}
    return core, _object_schema(properties, required, False, {})


def _is_json(value: object) -> bool:
    """Return whether a default is a plain JSON value."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(element) for key, element in value.items())
    return value is None or type(value) in (str, int, bool)


def _describe_with_pydantic(
    fn: Callable[..., Any], parameters: Sequence[Parameter]
) -> tuple[Any, Schema]:
    try:
        core, schema = _generate(parameters)
    except Exception:  # any failure is reported below, by parameter
        for parameter in parameters:
            _check_parameter(fn, parameter)
        raise
    for parameter, (key, described) in zip(
        [p for p in parameters if not p.is_rest], schema["properties"].items(), strict=True
    ):
        own = described.get("description", "")
        if parameter.description and (not own or described.get("format") == HANDLE):
            text = f"{parameter.description} ({own})" if own else parameter.description
            schema["properties"][key] = {**described, "description": text}
    return core, schema


def _check_parameter(fn: Callable[..., Any], parameter: Parameter) -> None:
    """Raise a FatalError that names `parameter`, if JSON cannot fill it."""
    try:
        _generate([parameter])
    except Exception as error:  # pydantic, or a type's own hook, may raise anything
        kind = _type_words(parameter.annotation)
        detail = f" ({short_message(error)})" if isinstance(error, _NoJsonForm) else ""
        raise FatalError(
            f"{name_of(fn)}: parameter {parameter.name!r} has the type {kind}, which a model "
            f"cannot send as JSON{detail}; take a name, a path or plain values instead (str, int, "
            "float, bool, list, dict, a dataclass, a pydantic model)."
        ) from error


class _NoJsonForm(Exception):
    """Pydantic can describe the type, but no JSON value can represent it."""


def _type_words(annotation: object) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        module = annotation.__module__
        short = module in ("builtins", "__main__")
        return annotation.__qualname__ if short else f"{module}.{annotation.__qualname__}"
    return re.sub(r"\b(?:collections\.abc|typing)\.", "", safe_repr(annotation))


def _handle_schema(kind: Any) -> Schema:
    if not _is_held(kind):
        raise TypeError(f"no call returns a {kind!r}")
    text = f"a handle, such as @r7, of a kept {_short_name(kind)}"
    return {"type": "string", "format": HANDLE, "description": text}


def _is_held(kind: object) -> bool:
    """Return whether results of this type are stored by reference, so that a handle can exist.

    NumPy's numbers are sent as numbers, and an open file cannot be sent at all.
    """
    if not isinstance(kind, type) or kind in (type, range) or kind.__module__ == "typing":
        return False
    is_number = any((b.__module__, b.__name__) == ("numpy", "generic") for b in kind.__mro__)
    return not is_number and not getattr(kind, "_is_protocol", False)


def _short_name(kind: type) -> str:
    module = kind.__module__
    short = module in ("builtins", "__main__")
    return kind.__qualname__ if short else f"{module.partition('.')[0]}.{kind.__qualname__}"


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - heavy

    class Generator(GenerateJsonSchema):
        """Pydantic's generator without the titles it makes of names, and without warnings."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

        def field_title_should_be_set(self, schema: object) -> bool:
            return False

        def is_instance_schema(self, schema: Any) -> Any:
            return _handle_schema(schema["cls"])

    return Generator


def describe_written(core: Any) -> Schema:
    """Return the JSON schema of what a type writes: with serializers, computed fields, aliases.

    A serializer that does not say what it returns may write anything.
    """
    generator: Any = _generator()

    class WrittenAsSent(generator):  # type: ignore[misc] # a class that is known only at run time
        def ser_schema(self, schema: Any) -> Any:
            is_function = schema["type"] in ("function-plain", "function-wrap")
            said = not is_function or schema.get("return_schema")
            return super().ser_schema(schema) if said else {}

        def handle_invalid_for_json_schema(self, schema: object, error_info: str) -> Any:
            return {}

    written: Schema = WrittenAsSent().generate(core, mode="serialization")
    return written


def _generate(parameters: Sequence[Parameter]) -> tuple[Any, Schema]:
    """Describe the parameters by pydantic, as those of a function that takes all by name."""
    from pydantic.experimental.arguments_schema import generate_arguments_schema  # noqa: PLC0415 - heavy

    def stub(**arguments: Any) -> None: ...

    stub.__annotations__ = {p.name: p.annotation for p in parameters}
    stub.__dict__["__signature__"] = inspect.Signature(  # read by inspect
        [
            inspect.Parameter(
                p.name,
                inspect.Parameter.VAR_KEYWORD if p.is_rest else inspect.Parameter.KEYWORD_ONLY,
                default=p.default,
                annotation=p.annotation,
            )
            for p in parameters
        ]
    )
    _refuse_unsendable(parameters)
    core = generate_arguments_schema(stub, schema_type="arguments", config=_CONFIG)
    raw = _generator()().generate(core, mode="validation")
    tidy = _tidy(raw)
    defs = {name: _without(each, "title") for name, each in tidy.get("$defs", {}).items()}
    # Pydantic leaves the keyword out where **rest takes anything.
    additional = tidy["additionalProperties"] if "additionalProperties" in raw else True
    return core, _object_schema(tidy["properties"], tidy.get("required", []), additional, defs)


def _refuse_unsendable(parameters: Sequence[Parameter]) -> None:
    for parameter in parameters:
        if get_origin(parameter.annotation) is type:
            raise _NoJsonForm("a class is no JSON value")
        if get_origin(parameter.annotation) is typing.Unpack:
            raise _NoJsonForm("write the keys as parameters of their own")


def _without(schema: Schema, *keywords: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in keywords}


def _map_schemas(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return `schema` with `change` applied to each schema directly inside it."""
    new = dict(schema)
    for key, value in schema.items():
        if key in ("properties", "$defs", "patternProperties"):
            new[key] = {name: change(each) for name, each in value.items()}
        elif key in ("anyOf", "allOf", "oneOf", "prefixItems"):
            new[key] = [change(each) for each in value]
        elif key in ("items", "additionalProperties", "not", "contains", "propertyNames"):
            new[key] = change(value) if isinstance(value, dict) else value
    return new


def _tidy(schema: Schema) -> Schema:
    """Reduce a schema to the provider's subset: enum for const, anyOf for oneOf, objects closed."""
    if schema.get("format") == "binary":
        raise _NoJsonForm("JSON has no bytes; pydantic.Base64Bytes works")
    tidy = _map_schemas(schema, _tidy)
    if "const" in tidy:
        tidy["enum"] = [tidy.pop("const")]
    if "oneOf" in tidy:
        tidy["anyOf"] = tidy.pop("oneOf")
        tidy.pop("discriminator", None)
    if "properties" in tidy:
        tidy.setdefault("additionalProperties", False)
        tidy.setdefault("required", [])
    if "default" in tidy and not _is_json(tidy["default"]):
        del tidy["default"]
    return tidy


# -- strict mode -----------------------------------------------------------------------------------


def _strict_obstacle(schema: Schema, path: str) -> str:
    """Return why strict mode cannot express `schema`, or ""."""
    here = path or "the arguments"
    kind = schema.get("type")
    if not _KNOWN_KEYWORDS.issuperset(schema):
        return f"{here}: {min(schema.keys() - _KNOWN_KEYWORDS)} is not in the strict subset"
    if kind in _LEAVES and "anyOf" not in schema and "$defs" not in schema:
        return ""
    if kind is None and "anyOf" not in schema and "$ref" not in schema:
        mixed = "values of several types in one enum" if "enum" in schema else "any JSON value"
        return f"{here}: {mixed}"
    if kind is not None and kind not in STRICT_TYPES:
        return f"{here}: several types at once"
    if kind == "object" and schema.get("additionalProperties") is not False:
        return f"{here}: an object with free keys"
    if kind == "array" and "items" not in schema:
        return f"{here}: an array of anything"
    for inner, inner_path in _inner(schema, path):
        reason = _strict_obstacle(inner, inner_path)
        if reason:
            return reason
    return ""


def find_optional(schema: Schema, path: str = "") -> str:
    """Return the path of an argument, or of a field in one, that may be left out; "" for none."""
    for name in schema.get("properties", {}):
        if name not in schema["required"]:
            return f"{path}.{name}" if path else str(name)
    for inner, inner_path in _inner(schema, path):
        if inner.get("type") not in _LEAVES and (found := find_optional(inner, inner_path)):
            return found
    return ""


def _inner(schema: Schema, path: str) -> Iterator[tuple[Schema, str]]:
    for name, each in schema.get("properties", {}).items():
        yield each, f"{path}.{name}" if path else name
    for name, each in schema.get("$defs", {}).items():
        yield each, name
    for each in schema.get("anyOf", ()):
        yield each, path
    if "items" in schema:
        yield schema["items"], f"{path}[]"
