"""Reads a function's signature: which parameters a model fills, with which annotations."""

import functools
import inspect
import re
import types
import typing
import weakref
from collections import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.schema.annotations import Schema, describe_annotation
from agent_magics.dispatch.schema.docstring import parse_docstring
from agent_magics.protocol.errors import FatalError, short_message

R = TypeVar("R")


# A tool's specification, its handler, its binder and its stub each read them.
def once_each(read: Callable[[Callable[..., Any]], R]) -> Callable[[Callable[..., Any]], R]:
    """Return `read` with a cache by function; other callables may not be hashable."""
    known: weakref.WeakKeyDictionary[Callable[..., Any], R] = weakref.WeakKeyDictionary()

    @functools.wraps(read)
    def reader(fn: Callable[..., Any]) -> R:
        if not isinstance(fn, types.FunctionType):
            return read(fn)
        found = known.get(fn)
        if found is None:
            found = known[fn] = read(fn)
        return found

    return reader


@once_each
def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature.

    Raises:
        FatalError: it has none that can be read.
    """
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        raise FatalError(
            f"{name_of(fn)} has no readable signature; wrap it in a function with annotated "
            "parameters."
        ) from None


def context_parameter(fn: Callable[..., Any]) -> str | None:
    """Return the name of the parameter annotated `ToolContext`, or None."""
    for parameter in signature_of(fn).parameters.values():
        if _is_context(parameter.annotation, fn):
            return parameter.name
    return None


@dataclass(slots=True)
class Parameter:
    """One parameter that the model fills.

    Attributes:
        annotation: resolved; Any where there was none.
        simple: its core schema and JSON schema, where those need no pydantic.
    """

    name: str
    annotation: Any
    simple: tuple[Any, Schema] | None
    default: Any
    is_positional: bool
    is_rest: bool
    description: str

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty


def name_of(fn: Callable[..., Any]) -> str:
    """Return the function's name for messages."""
    inner = fn.func if isinstance(fn, functools.partial) else fn
    return str(getattr(inner, "__name__", type(inner).__name__))


@once_each
def read_parameters(fn: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the parameters that a model fills.

    Raises:
        FatalError: one of them cannot be filled by name, or its annotation cannot be resolved.
    """
    return tuple(_read_parameters(fn))


def _read_parameters(fn: Callable[..., Any]) -> list[Parameter]:
    described = parse_docstring(getattr(_innermost(fn), "__doc__", None)).params
    parameters: list[Parameter] = []
    for name, given in signature_of(fn).parameters.items():
        annotation, kind = given.annotation, given.kind
        simple = describe_annotation(annotation)
        if simple is None and _is_context(annotation, fn):
            continue
        if kind is given.VAR_POSITIONAL:
            raise FatalError(
                f"{name_of(fn)}: *{name} cannot be filled by a model, which passes arguments by "
                f"name; take a list parameter instead, such as {name}: list[str]."
            )
        if name in ("self", "cls") and not parameters and given.annotation is given.empty:
            raise FatalError(
                f"{name_of(fn)}: {name} is the object of a method, which a model cannot send; "
                "write a small def that calls the method of your object."
            )
        if simple is None:
            annotation = _resolve(fn, given)
            simple = describe_annotation(annotation)
        parameters.append(
            Parameter(
                name,
                annotation,
                simple,
                given.default,
                is_positional=kind is given.POSITIONAL_ONLY,
                is_rest=kind is given.VAR_KEYWORD,
                description=_annotated_description(annotation) or described.get(name, ""),
            )
        )
    return parameters


def _innermost(fn: object) -> Any:
    """Return the original function, without partials, methods and wrapping decorators."""
    while True:
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif not isinstance(fn, type) and not hasattr(fn, "__code__") and callable(fn):
            call = getattr(type(fn), "__call__", None)  # noqa: B004 - the function, not a test
            if not hasattr(call, "__code__"):
                return fn
            fn = call
        else:
            return fn


def _namespaces_of(fn: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the global and the local names that a function's annotations may use."""
    inner = _innermost(fn)
    if isinstance(inner, type):
        kind: Any = inner  # of which class it is the constructor does not matter
        inner = kind.__init__
    names: dict[str, Any] = {kind.__name__: kind for kind in getattr(inner, "__type_params__", ())}
    code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return getattr(inner, "__globals__", {}), names


def _resolve(fn: Callable[..., Any], given: inspect.Parameter) -> Any:
    """Return the annotation as an object; strings are evaluated in the function's namespaces."""
    if given.annotation is given.empty:
        return Any
    try:
        return _readable(_evaluate(given.annotation, fn))
    except Exception as error:  # evaluating an annotation may raise anything
        raise FatalError(
            f"{name_of(fn)}: the annotation {given.annotation!r} of parameter {given.name!r} "
            f"cannot be resolved ({short_message(error)}); define or import that name at "
            "module level, or write the class itself instead of a string."
        ) from None


def _evaluate(annotation: object, fn: Callable[..., Any]) -> Any:
    if type(annotation) is type:
        return annotation
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    return get_type_hints(holder, *_namespaces_of(fn), include_extras=True)["it"]


_CONTEXT_WORDS = re.compile(r"(\w+\.)*(Optional\[)?(\w+\.)*ToolContext\]?(\s*\|\s*None)?")


def _is_context(annotation: Any, fn: Callable[..., Any]) -> bool:
    if type(annotation) is type:  # nearly every annotation, at no cost
        return annotation is ToolContext
    if isinstance(annotation, str):
        if "ToolContext" not in annotation:
            return False
        try:
            annotation = _evaluate(annotation, fn)
        except Exception:  # imported for type checkers only
            return _CONTEXT_WORDS.fullmatch(annotation) is not None
    if get_origin(annotation) in (Union, types.UnionType, typing.Annotated):
        return any(_is_context(each, fn) for each in get_args(annotation)[:2])
    return annotation is ToolContext


def _annotated_description(annotation: object) -> str:
    """Return the text of ``Annotated[str, "text"]`` or of a ``Doc("text")`` there, or ""."""
    if type(annotation) is type or get_origin(annotation) is not typing.Annotated:
        return ""
    for extra in get_args(annotation)[1:]:
        text = getattr(extra, "documentation", extra)
        if isinstance(text, str):
            return text
    return ""


# -- annotations as pydantic can take them ---------------------------------------------------------

# Pydantic reads these lazily or not at all; a tool means "several values", which is a list.
_LISTS = (abc.Iterable, abc.Iterator, abc.Generator, abc.Collection)


_ALIASES = getattr(typing, "TypeAliasType", ())  # those of Python 3.12: `type Name = ...`


class _RecursiveAlias(Exception):
    """An alias made by ``type`` occurs in its own definition."""


def _readable(annotation: object, aliases: tuple[Any, ...] = ()) -> Any:
    """Return the annotation with TypedDicts, iterables and aliases in a form that pydantic takes.

    Args:
        annotation: an object, not a string.
        aliases: the aliases that it is nested in.
    """
    if isinstance(get_origin(annotation) or annotation, _ALIASES):
        return _readable_alias(annotation, aliases)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if typing.is_typeddict(annotation):
        return _readable_typed_dict(annotation)
    if annotation in _LISTS if isinstance(annotation, type) else False:
        return list
    if origin in _LISTS:
        return types.GenericAlias(list, _readable(arguments[0], aliases))
    if origin in (None, typing.Literal, typing.Unpack, abc.Callable) or not arguments:
        return annotation
    if origin is typing.Annotated:
        inner = _readable(arguments[0], aliases)
        return typing.Annotated[(inner, *arguments[1:])]
    new = tuple(_readable(each, aliases) for each in arguments)
    if new == arguments:
        return annotation
    if origin in (Union, types.UnionType):
        return Union[new]  # noqa: UP007 - members known only at run time
    return origin[new]


def _readable_alias(annotation: Any, aliases: tuple[Any, ...]) -> Any:
    """Return the definition of an alias made by ``type``; a recursive one is left to pydantic."""
    alias = get_origin(annotation) or annotation
    if alias in aliases:
        raise _RecursiveAlias
    value = alias.__value__
    given = dict(zip(alias.__type_params__, get_args(annotation), strict=False))
    if given:
        value = value[tuple(given[each] for each in value.__parameters__)]
    try:
        return _readable(value, (*aliases, alias))
    except _RecursiveAlias:
        return annotation


def _readable_typed_dict(kind: Any) -> Any:
    """Return a TypedDict in the form of typing_extensions, as pydantic needs before Python 3.12."""
    import typing_extensions as extensions  # noqa: PLC0415 - comes with pydantic, needed as rarely

    if kind.__class__.__module__ == "typing_extensions":
        return kind
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        marked = get_origin(hint) in (typing.Required, typing.NotRequired)
        inner = _readable(get_args(hint)[0] if marked else hint)
        optional = (
            get_origin(hint) is typing.NotRequired if marked else name in kind.__optional_keys__
        )
        fields[name] = extensions.NotRequired[inner] if optional else inner
    make: Any = extensions.TypedDict  # with fields that are known only now
    return make(kind.__name__, fields)
