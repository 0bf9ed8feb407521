"""Refuses arguments of a wrong type where programs call this package, in one sentence."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from agent_magics.protocol.errors import AgentMagicsError, FatalError
from agent_magics.text.brief import brief_line

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN = 80  # characters of a value
_WORDS: Mapping[Any, str] = {
    bool: "True or False",
    float: "a number",
    int: "a whole number",
    str: "text",
    NoneType: "None",
    Mapping: "a dict",
    Callable: "a function",
}
# NumPy's numbers are of these kinds, too.
_NUMBERS: Mapping[type, type] = {int: Integral, float: Real}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function raise a `FatalError` where an argument has another type than it declares.

    A type that is declared as text, or as `Any`, takes everything.
    """
    signature = inspect.signature(function)
    kinds = {
        name: each.annotation
        for name, each in signature.parameters.items()
        if each.annotation is not each.empty
    }

    @functools.wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            given = {}  # the call itself says best what is missing or too much
        for name in given.keys() & kinds.keys():
            check(f"{function.__name__}: {name}", given[name], kinds[name])
        return function(*args, **kwargs)

    return checking


def check(what: str, value: object, kind: Any, error: type[AgentMagicsError] = FatalError) -> None:
    """Raise an error that begins with `what` where a value is not of a type.

    Types are classes (of dataclasses the fields count, too), unions, `Literal[...]`,
    `Sequence[...]`, which is no text, `Mapping[...]` and `Callable[...]`.
    """
    if not _fits(value, kind):
        shown = brief_line(repr(value), _SHOWN)
        raise error(f"{what}={shown} does not fit; it takes {_words(kind)}.")


def plain_number(value: Any) -> Any:
    """Return a number of NumPy or another library as Python's own; other values as they are."""
    if isinstance(value, int | float):
        return value
    return next((own(value) for own, kind in _NUMBERS.items() if isinstance(value, kind)), value)


def _fits(value: object, kind: Any) -> bool:
    base = get_origin(kind) or kind
    if base is UnionType:
        return any(_fits(value, each) for each in get_args(kind))
    if base is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if base is Any or not isinstance(base, type):
        return True
    if isinstance(value, bool):  # which is an int to Python, and nearly never meant so
        return base is bool
    if base is Sequence:
        (of,) = get_args(kind) or (Any,)
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return False
        return all(_fits(each, of) for each in value)
    parts = fields(base) if is_dataclass(base) else ()
    is_one = isinstance(value, _NUMBERS.get(base, base))
    return is_one and all(_fits(getattr(value, f.name), f.type) for f in parts)


def _words(kind: Any) -> str:
    base = get_origin(kind) or kind
    if base is UnionType:
        return " or ".join(map(_words, get_args(kind)))
    if base is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if base is Sequence:
        return " of ".join(["a list", *map(_words, get_args(kind))])
    return _WORDS.get(base) or base.__name__
