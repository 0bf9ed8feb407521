"""Validates settings by the types of their table; each mistake is one sentence."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from pathlib import Path, PosixPath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

from agent_magics.files.beneath import folders_of_links, is_below
from agent_magics.files.paths import is_folder, typed_path
from agent_magics.models.providers.catalog import DATE, find_model
from agent_magics.models.providers.endpoints import check_address, endpoint_of
from agent_magics.models.providers.families import check_features
from agent_magics.protocol.checked import plain_number
from agent_magics.protocol.config import (
    Address,
    CheckedByUser,
    Features,
    Folder,
    LoopLimits,
    RunConfig,
    SandboxPolicy,
    Setting,
)
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.settings.table import KINDS, SETTINGS, Kind, choices_of
from agent_magics.text.brief import brief, meant

_LONGEST_SHOWN = 300  # characters of a value
_KEY_IN_ADDRESS = re.compile(r"(?<=://)[^/\s'\"]*(?=@)|(?<=\?)[^\s'\"]+")
_NO_FOLDER = "is not a folder; give one that exists."
_NO_WORKSPACE = frozenset(
    {
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/proc", "/run", "/sbin", "/sys"),
        *("/usr", "/var", "/Users", "/Library", "/System"),
    }
)


# -- one value -------------------------------------------------------------------------------------


def validated(given: Mapping[str, object]) -> dict[str, Any]:
    """Validate settings and convert them to their types.

    Args:
        given: values by the name of their setting.

    Raises:
        FatalError: a name is no setting, or a value does not fit; the sentence says which and why.
    """
    for name in given:
        if name not in SETTINGS:
            shown = brief(repr(name), _LONGEST_SHOWN)
            raise FatalError(f"{shown} is not a setting; {meant(name, SETTINGS)}")
    return {name: _validated(name, value) for name, value in given.items()}


def validated_in(given: Mapping[str, object], place: Callable[[str], str]) -> dict[str, Any]:
    """Validate settings as `validated` does; an error begins with the place of the faulty one."""
    checked: dict[str, Any] = {}
    for name, value in given.items():
        try:
            checked |= validated({name: value})
        except FatalError as error:
            raise FatalError(f"{place(name)}: {short_message(error)}") from None
    return checked


def _validated(name: str, value: object) -> Any:
    from pydantic_core import ValidationError  # noqa: PLC0415 - 25 ms, before the first agent

    try:
        return _validator(name).validate_python(plain_number(value))
    except ValidationError as error:
        first = error.errors()[0]
        problem = _problem(name, str(first["type"]), first.get("ctx", {}))
        raise FatalError(f"{name}{_shown(name, value)} {problem}") from None


def _shown(name: str, value: object) -> str:
    """Return a value for an error: not at length, and without a key."""
    if name == "api_key":
        return ""
    return f"={_KEY_IN_ADDRESS.sub('…', brief(repr(value), _LONGEST_SHOWN))}"


class _ExistingFolder(PosixPath):
    """A folder without links in its path, and the folders of the links by which it was named."""

    folders_of_links: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return repr(Path(self))


def _existing_folder(path: object) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError("is not a path.")
    try:
        given = _ExistingFolder(typed_path(path)).absolute()
        links = {*folders_of_links(str(given)), *getattr(path, "folders_of_links", ())}
        folder = given.resolve()
    except FileNotFoundError:
        raise ValueError(
            "cannot be found: the folder that this process works in was deleted. Change to one "
            "that exists (os.chdir), or start the kernel anew."
        ) from None
    except (OSError, ValueError):  # such as one with a NUL
        raise ValueError(_NO_FOLDER) from None
    if not is_folder(folder):
        raise ValueError(_NO_FOLDER)
    folder.folders_of_links = frozenset(links)
    return folder


def _limits(value: object) -> Any:
    """Build limits of repetition from a mapping that may have only some of their fields."""
    if value is None or isinstance(value, LoopLimits):
        return value or LoopLimits()
    known = [field.name for field in fields(LoopLimits)]
    if not isinstance(value, Mapping) or not set(value) <= set(known):
        shown = brief(repr(value), _LONGEST_SHOWN)
        raise FatalError(f"loops={shown} takes these and no others: {', '.join(known)}.")
    counts = {name: plain_number(count) for name, count in value.items()}
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            shown = brief(repr(count), _LONGEST_SHOWN)
            raise FatalError(f"loops: {name}={shown} must be a whole number of at least 1.")
    return LoopLimits(**counts)


# Schemas of pydantic's core: plain dictionaries, whose keys `pydantic_core.core_schema` documents.
# To import the rest of pydantic and let it make them would add 60 ms to each first turn.


@cache
def _validator(name: str) -> Any:
    from pydantic_core import SchemaValidator  # noqa: PLC0415 - as above

    return SchemaValidator(_schema_of(KINDS[name]))


def _by(function: Callable[[Any], Any]) -> Any:
    return {"type": "function-plain", "function": {"type": "no-info", "function": function}}


_SCHEMAS: Mapping[Kind, Any] = {
    bool: {"type": "bool", "strict": True},
    str: {"type": "str", "strict": True},
    int: {"type": "int", "strict": True},
    float: {"type": "float", "strict": True, "allow_inf_nan": False},
    Path: {"type": "is-instance", "cls": Path},
    Callable: {"type": "callable"},
    LoopLimits: _by(_limits),
    Folder: _by(_existing_folder),
    Features: _by(lambda given: check_features(given or {})),
    CheckedByUser: {"type": "any"},
}


def _schema_of(kind: Kind, bounds: Mapping[str, int] = {}) -> Any:
    """Return pydantic's core schema of a setting's type; `bounds` are keys of a number or text."""
    origin: object = get_origin(kind)
    arguments = get_args(kind)
    if origin is Annotated:
        return _schema_of_annotated(*arguments)
    if origin is UnionType:
        choices = [_schema_of(each, bounds) for each in arguments if each is not NoneType]
        inner = choices[0] if len(choices) == 1 else {"type": "union", "choices": choices}
        return {"type": "nullable", "schema": inner}
    if origin is tuple:
        items = [_schema_of(arguments[0])]
        return {"type": "tuple", "items_schema": items, "variadic_item_index": 0}
    if origin is Literal:
        return {"type": "literal", "expected": list(arguments)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"type": "enum", "cls": kind, "members": list(kind), "sub_type": "str"}
    return {**_SCHEMAS[origin or kind], **bounds}


def _schema_of_annotated(kind: Kind, *marks: Any) -> Any:
    bounds = {}
    for mark in marks:
        if mark in _SCHEMAS:
            return _SCHEMAS[mark]
        if isinstance(mark, Setting):
            keys = {"min_length" if kind is str else "ge": mark.least, "gt": mark.above}
            bounds = {key: bound for key, bound in keys.items() if bound is not None}
    schema = _schema_of(kind, bounds)
    if Address in marks:
        check = {"type": "no-info", "function": check_address}
        return {"type": "function-after", "function": check, "schema": schema}
    return schema


# pydantic's error type -> a description; all other errors get the last row.
_PROBLEMS: Mapping[str, str] = {
    "bool_type": "must be True or False.",
    "int_type": "must be a whole number{least}.",
    "greater_than_equal": "must be a whole number{least}.",
    "float_type": "must be a number greater than 0.",
    "greater_than": "must be a number greater than 0.",
    "finite_number": "must be a number greater than 0.",
    "enum": "is not one of: {choices}.",
    "literal_error": "is not one of: {choices}.",
    "string_type": "must be text.",
    "string_too_short": "must not be empty.",
    "callable_type": "must be a function.",
    "tuple_type": "must be a list of folders.",
    "value_error": "{error}",
}


def _problem(name: str, kind: str, context: Mapping[str, object]) -> str:
    least = SETTINGS[name].least
    return _PROBLEMS.get(kind, "does not fit: it is of another type.").format(
        least="" if least is None else f" of at least {least}",
        choices=" | ".join(choices_of(name)),
        error=context.get("error", ""),
    )


# -- what must fit together ------------------------------------------------------------------------


def check_roots(config: RunConfig) -> None:
    """Refuse a workspace or writable folder that would make the sandbox useless.

    The home folder is allowed, since on Binder the notebooks stand in it; its start-up files are
    then protected.

    Raises:
        FatalError: a folder that may be written is the whole machine, or the system's own, or is
            named through a link that commands may turn.
    """
    if config.sandbox is not SandboxPolicy.WORKSPACE_WRITE:
        return
    for root in config.roots:
        if str(root) in _NO_WORKSPACE:
            raise FatalError(
                f"{str(root)!r} cannot be written as a whole in sandbox='workspace-write': start "
                "in a folder of your own (cwd=...), or use sandbox='read-only' or "
                "'danger-full-access'."
            )
        for folder in getattr(root, "folders_of_links", ()):
            if is_below(folder, [str(each) for each in config.roots]):
                raise FatalError(
                    f"{str(root)!r} is named through a link in {folder!r}, where a command could "
                    "turn it to another folder: name the folder itself."
                )


def check_price(config: RunConfig, address: str) -> None:
    """Refuse a budget in money where the price of a request is unknown.

    Args:
        config: the run's configuration.
        address: the server's base URL; some servers report the cost in each answer.

    Raises:
        FatalError: `max_cost` is set, and the price of the model is not known.
    """
    if config.max_cost is None or endpoint_of(address).reports_cost:
        return
    card = find_model(config.model)
    if card is None or card.input_price is None:
        raise FatalError(
            f"max_cost={config.max_cost:g} cannot be kept: the price of {config.model} is not "
            f"known (price list of {DATE}); use max_tokens or max_turns."
        )
