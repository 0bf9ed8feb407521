"""Validates a model's JSON arguments and converts them to Python values."""

import datetime
import functools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from agent_magics.dispatch.arguments.references import KeptArguments
from agent_magics.dispatch.arguments.validation_errors import (
    explain_errors,
    explain_syntax,
    locate_problem,
    show_value,
)
from agent_magics.dispatch.results.values import Types
from agent_magics.dispatch.schema.annotations import Schema
from agent_magics.dispatch.schema.generation import describe
from agent_magics.dispatch.schema.path import may_be_left_out
from agent_magics.dispatch.schema.signature import name_of, read_parameters
from agent_magics.protocol.errors import RespondToModel, short_message

_PLAIN = Types(
    *(str, bytes, int, float, complex, bool),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID),
)
_CORE_CONFIG: Any = {"coerce_numbers_to_str": True, "extra_fields_behavior": "forbid"}


def validator_of(core: Any) -> Any:
    """Return pydantic's validator of a core schema, as lenient as models need it."""
    from pydantic_core import SchemaValidator  # noqa: PLC0415 - heavy

    return SchemaValidator(core, config=_CORE_CONFIG)


class ArgumentBinder:
    """Validates a model's arguments and binds them to a function's parameters.

    Values are converted leniently ("5" for an int, 5 for a str) and arrive as the annotated types:
    Enum members, dates, paths, dataclasses. Null for a parameter with a default counts as absent.
    The validator is built at the first use.
    """

    def __init__(self, fn: Callable[..., Any], name: str | None = None):
        """Store the function.

        Args:
            fn: the function; its signature is read when the first arguments arrive.
            name: its name in messages, if not its own.
        """
        self._fn = fn
        self._name = name or name_of(fn)
        self._validator: Any = None
        self._schema: Schema = {}
        self._positional: list[str] = []

    def bind_json(
        self, text: str, value_of: Callable[[str], Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Parse JSON text and return the function's positional and keyword arguments.

        Args:
            text: a JSON object, as the model wrote it.
            value_of: returns the object stored under a name such as ``@r7``, or raises
                RespondToModel. Where a parameter takes no text, that object is passed.

        Raises:
            RespondToModel: the text is not a JSON object, or does not fit; names all problems.
            FatalError: the function has a parameter that JSON cannot fill.
        """
        if self._validator is None:
            self._build()
        if text[:1] != "{":
            text = self._object_text(text)
        if value_of is not None and '"@r' in text:
            given = KeptArguments(self._schema, value_of).put_into(self._parse(text))
            if given.names:
                return self._bind_kept(given)
        try:
            bound = self._validator.validate_json(text)
        except ValueError as error:
            bound = self._bind_again(error, functools.partial(self._parse, text), text)
        return self._place(bound) if self._positional else bound

    def bind(self, mapping: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the function's positional and keyword arguments from values by name.

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

    def _bind_kept(self, kept: KeptArguments) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bind arguments with stored objects; those that need no conversion are passed uncopied."""
        try:
            bound = self._validator.validate_python(kept.given)
        except ValueError as error:
            bound = self._bind_again(error, lambda: kept.given, None, kept.names)
        _, named = bound
        for name, value in kept.given.items():
            # Validation copies lists and dicts; a copy that differs is what the tool asks for.
            if id(value) in kept.names and _is_unchanged(value, named.get(name)):
                named[name] = value
        return self._place(bound) if self._positional else bound

    def _build(self) -> None:
        core, self._schema = describe(self._fn)
        self._positional = [p.name for p in read_parameters(self._fn) if p.is_positional]
        self._validator = validator_of(core)

    def _place(self, bound: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Move positional-only parameters, which the model passes by name, to the first result."""
        _, named = bound
        return tuple(named.pop(name) for name in self._positional), named

    def _bind_again(
        self,
        error: ValueError,
        parse: Callable[[], Any],
        text: str | None,
        names: Mapping[int, str] = {},
    ) -> Any:
        """Retry without refused nulls and with JSON texts parsed; else raise with all problems."""
        from pydantic_core import ValidationError, to_json  # noqa: PLC0415 - heavy

        if not isinstance(error, ValidationError):
            raise error
        given = parse()
        refused = [(locate_problem(p, given)[0], p["input"]) for p in error.errors()]
        nulls = {
            place
            for place, value in refused
            if value is None and place and may_be_left_out(self._schema, place)
        }
        read = {place: data for place, value in refused if (data := _read_data(value)) is not None}
        if nulls or read:
            repaired = _repaired(given, (), read, nulls)
            given = repaired if nulls else given
            try:
                if text is None:
                    return self._validator.validate_python(repaired)
                again = to_json(repaired, inf_nan_mode="constants")
                return self._validator.validate_json(again)
            except ValidationError as second:
                error = second if nulls else error
            except ValueError:  # a text within the arguments makes them too deep to be written
                pass
        problems = error.errors(include_url=False)
        message = explain_errors(problems, given, nulls, self._schema, self._name, names)
        raise RespondToModel(message) from None

    def _object_text(self, text: str) -> str:
        """Return the text if it begins an object, "{}" for none; raise for any other JSON value."""
        stripped = text.strip()
        if not stripped:
            return "{}"
        if stripped[0] != "{":
            value = self._parse(text)
            raise RespondToModel(
                f"The arguments of {self._name} must be one JSON object, got {show_value(value)}. "
                "Nothing was run; send them again as an object of names and values."
            )
        return text

    def _parse(self, text: str) -> Any:
        from pydantic_core import from_json  # noqa: PLC0415 - heavy

        try:
            return from_json(text)
        except TypeError:  # a lone surrogate, which UTF-8 cannot encode
            raise RespondToModel(
                f"The arguments of {self._name} are not valid Unicode: they hold half a character "
                "(a lone surrogate). Nothing was run; send the whole arguments again."
            ) from None
        except ValueError as error:
            raise RespondToModel(explain_syntax(short_message(error), text, self._name)) from None


def _is_unchanged(given: Any, bound: Any) -> bool:
    """Return whether validation has made an equal copy, with parts of the same types."""
    if given is bound:
        return True
    kind = type(given)
    if type(bound) is not kind:
        return False
    if kind is list or kind is tuple:
        return len(given) == len(bound) and all(map(_is_unchanged, given, bound))
    if kind is set or kind is frozenset:
        return given == bound and {*map(type, given)} == {*map(type, bound)}
    if kind is dict:  # the copy has the same order
        has_same_keys = len(given) == len(bound) and all(map(_is_unchanged, given, bound))
        return has_same_keys and all(map(_is_unchanged, given.values(), bound.values()))
    return kind in _PLAIN and (given == bound or (given != given and bound != bound))


def _read_data(value: object) -> Any:
    """Parse text that is a JSON list or object; return None for anything else."""
    from pydantic_core import from_json  # noqa: PLC0415 - heavy

    if not (isinstance(value, str) and value.lstrip()[:1] in ("[", "{")):
        return None
    try:
        return from_json(value)  # which limits the depth, and knows no half characters
    except (ValueError, TypeError):
        return None


def _repaired(
    value: object,
    place: tuple[Any, ...],
    read: Mapping[tuple[Any, ...], Any],
    nulls: set[tuple[Any, ...]],
) -> Any:
    """Return a copy of the arguments with the values of `read` at their places, and without the
    refused nulls.
    """
    if place in read:
        return read[place]
    if isinstance(value, dict):
        return {
            key: _repaired(each, (*place, key), read, nulls)
            for key, each in value.items()
            if (*place, key) not in nulls
        }
    if isinstance(value, list):
        return [_repaired(each, (*place, n), read, nulls) for n, each in enumerate(value)]
    return value
