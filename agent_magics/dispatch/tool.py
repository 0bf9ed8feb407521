"""``@tool``: what makes a plain function callable by a model without making it less of a function.

The function object itself is returned, with two attributes added: `.spec`, its `FunctionToolSpec`,
derived when first looked at (pydantic is not imported before), and `.aio`, its coroutine.
"""

import asyncio
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from agent_magics.dispatch.actions import Action
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.docstring import parse_docstring
from agent_magics.dispatch.preparation import Preparation
from agent_magics.dispatch.schema import derive_parameters
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import (
    FreeformToolSpec,
    FunctionToolSpec,
    LocalShellSpec,
    ToolSpec,
)

F = TypeVar("F", bound=Callable[..., Any])
Assess = Callable[[Mapping[str, Any], ToolContext], list[Action]]

_NUMBERS = itertools.count(1)
_NAME_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What `@tool` was told beyond the function itself.

    Attributes:
        parallel: calls may run side by side, on threads of our own pool where the tool is sync.
        mutating: a call may change something; under ``untrusted`` it is asked about.
        strict: the provider may enforce the schema, where the schema allows that.
        inline: run directly on the engine's loop; only for work well under a millisecond.
        own: a tool of this package: an async one runs on the engine's loop.
        assess: says what a call would do, for approval.
        freeform: (syntax, definition) of a grammar; the tool then takes plain text as well.
        native: offered as the Responses API's own shell call, not as a function.
        group: its work is to make other calls, which it holds no place against.
        timeout: seconds a call may take, without the time that a question of its waits.
        init: makes ready what the tool needs, once, before its first call.
        number: grows from one `@tool` to the next; of two definitions the newer one holds.
    """

    name: str
    parallel: bool = False
    mutating: bool = True
    strict: bool = True
    inline: bool = False
    own: bool = False
    assess: Assess | None = None
    freeform: tuple[str, str] | None = None
    native: bool = False
    group: bool = False
    timeout: float | None = None
    init: Preparation | None = None
    number: int = field(default=0, compare=False)


class _DerivedSpec(FunctionToolSpec):
    """A spec that reads the function when a field is first asked for."""

    def __init__(self, fn: Callable[..., Any], options: ToolOptions) -> None:
        self._fn, self._options = fn, options
        self.name = options.name

    def __getattr__(self, field: str) -> Any:
        if field not in ("description", "parameters", "strict", "strict_reason"):
            raise AttributeError(field)
        parameters, strict, reason = derive_parameters(self._fn)
        if not self._options.strict:
            strict, reason = False, "strict=False was asked for"
        self.parameters, self.strict, self.strict_reason = parameters, strict, reason
        self.description = parse_docstring(self._fn.__doc__).description
        return self.__dict__[field]


@overload
def tool(fn: F) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    parallel: bool = False,
    mutating: bool = True,
    strict: bool = True,
    inline: bool = False,
    assess: Assess | None = None,
    freeform: tuple[str, str] | None = None,
    native: bool = False,
    group: bool = False,
    timeout: float | None = None,
    init: Callable[[], Any] | None = None,
) -> Callable[[F], F]: ...
def tool(fn: Any = None, **options: Any) -> Any:
    """Make a function a tool that a model can call; it stays an ordinary function.

    The name, the description (from the docstring), the parameters' descriptions (Google, NumPy or
    reST docstrings, or ``Annotated[..., Field(description=...)]``) and the JSON schema come from
    the function. A parameter annotated `ToolContext` is handed in and is no part of the schema.
    Sync and async functions and generators (what they yield is shown as progress) are all fine.

    Args:
        fn: the function, when used as plain ``@tool``.
        name: the name the model calls; by default the function's own.
        parallel: calls may run side by side; a sync function then runs on a thread, not on the
            notebook's main thread.
        mutating: whether a call may change something; False means it is never asked about.
        strict: allow the provider to enforce the schema exactly.
        inline: run on the engine's loop; only for work well under a millisecond.
        assess: says what a call with given arguments would do, for approval.
        freeform: (syntax, definition) of a grammar for tools that take plain text.
        native: offer it as the Responses API's own shell call (``local_shell``).
        group: its arguments are `calls` of other tools, which take their own places in the order.
        timeout: seconds a call may take; then the model is told that it took too long. What runs on
            a thread cannot be ended from outside: it is told by `ctx.cancelled`.
        init: a plain function without parameters that is run once, before the first call, on a
            thread; what it returns is `ctx.ready`. For what takes long to load.

    Returns:
        The same function object, with `.spec` and `.aio` added.

    Raises:
        FatalError: the name cannot be a tool's name, or `fn` is not a function.
    """
    if fn is None:
        return functools.partial(tool, **options)
    if not inspect.isroutine(fn):
        raise FatalError(f"@tool takes a function, not {fn!r}; decorate its method or a small def.")
    _check_timeout(fn, options.get("timeout"))
    if options.get("init") is not None:
        options["init"] = _prepared(fn, options["init"])
    settings = ToolOptions(
        name=checked_name(options.pop("name", None) or fn.__name__),
        own=(fn.__module__ or "").startswith("agent_magics.tools."),
        number=next(_NUMBERS),
        **options,
    )
    try:
        fn.tool_options = settings
    except AttributeError:  # built-in functions and bound methods keep nothing
        raise FatalError(
            f"@tool cannot be put on {settings.name!r} itself; wrap it in a small def."
        ) from None
    fn.spec = _DerivedSpec(fn, settings)
    fn.aio = fn if inspect.iscoroutinefunction(fn) else functools.partial(asyncio.to_thread, fn)
    return fn


def _check_timeout(fn: Any, seconds: Any) -> None:
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if seconds is not None and not (is_number and seconds > 0):
        raise FatalError(
            f"@tool(timeout={seconds!r}) on {fn.__name__}: expected a number of seconds above 0."
        )


def _prepared(fn: Any, init: Any) -> Preparation:
    if not callable(init) or inspect.iscoroutinefunction(init):
        raise FatalError(
            f"@tool(init={init!r}) on {fn.__name__}: expected a plain function without parameters."
        )
    return Preparation(init)


def checked_name(name: str) -> str:
    """Return a name that every provider takes.

    Raises:
        FatalError: it is none.
    """
    if not (isinstance(name, str) and 0 < len(name) <= 64 and _NAME_ALPHABET.issuperset(name)):
        raise FatalError(
            f"{name!r} cannot be a tool's name: use 1 to 64 letters, digits, _ or - "
            "(@tool(name=...) sets another one)."
        )
    return name


def is_tool(value: object) -> bool:
    """Tell whether `value` is a function that `@tool` has been on."""
    return callable(value) and isinstance(getattr(value, "tool_options", None), ToolOptions)


def as_tool(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` as a tool; a plain function is treated as if ``@tool`` stood on it."""
    return fn if is_tool(fn) else tool(fn)


def offered_specs(fn: Callable[..., Any], *, freeform: bool = True) -> ToolSpec:
    """Return the spec to offer a model: freeform where the tool has a grammar, else function.

    Args:
        fn: the tool.
        freeform: False for a model that knows only functions.
    """
    options: ToolOptions = fn.tool_options
    if options.native:
        return LocalShellSpec()
    if options.freeform is None or not freeform:
        return fn.spec
    syntax, definition = options.freeform
    return FreeformToolSpec(options.name, fn.spec.description, syntax, definition)
