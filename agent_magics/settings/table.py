"""Looks up properties of settings: where they can be given, their types, bounds and choices."""

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from types import UnionType
from typing import Any, TypeAlias, get_args, get_origin

from agent_magics.protocol.config import Setting, Settings, Where

Kind: TypeAlias = Any  # a type annotation, which no type describes

KINDS: Mapping[str, Kind] = {field.name: field.type for field in fields(Settings)}
SETTINGS: Mapping[str, Setting] = {
    name: next(each for each in get_args(kind) if isinstance(each, Setting))
    for name, kind in KINDS.items()
}
DEFAULTS = Settings()
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def settings_in(where: Where) -> dict[str, Setting]:
    """Return the settings that can be given in a place (program, cell, file ...), by name."""
    return {name: each for name, each in SETTINGS.items() if where in each.where}


def settings_in_editor() -> dict[str, Setting]:
    """Return the settings in JupyterLab's settings editor: the plain ones of the person's file."""
    return {name: each for name, each in settings_in(Where.USER).items() if schema_of(name)}


def schema_of(name: str) -> dict[str, object]:
    """Return the JSON schema of a setting's value; {} where it is not plain."""
    if choices_of(name):
        return {"type": "string", "enum": list(choices_of(name))}
    base = base_of(name)
    origin: object = get_origin(base)
    if origin is tuple:
        return {"type": "array", "items": {"type": "string"}}
    kind = get_args(base)[0] if isinstance(base, UnionType) else base
    found: dict[str, object] = {"type": _JSON_TYPES[kind]} if kind in _JSON_TYPES else {}
    setting = SETTINGS[name]
    if setting.least is not None and kind is not str:
        found["minimum"] = setting.least
    if setting.above is not None:
        found["exclusiveMinimum"] = setting.above
    return found


def base_of(name: str) -> Kind:
    """Return the type of a setting without its annotations."""
    return get_args(KINDS[name])[0]


def choices_of(name: str) -> tuple[str, ...]:
    """Return the values of a setting with a fixed choice; () for all others."""
    base = base_of(name)
    if isinstance(base, type) and issubclass(base, StrEnum):
        return tuple(map(str, base))
    values = get_args(base)
    return values if all(isinstance(each, str) for each in values) else ()
