"""``@tool``: marks a plain function as a tool that a model can call.

The function object itself is returned, with two attributes added: `.spec`, its `FunctionToolSpec`,
derived at the first access (pydantic is not imported before), and `.aio`, its coroutine function.
"""

import asyncio
import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields
from types import MethodType
from typing import Any, ParamSpec, Protocol, TypeGuard, TypeVar, overload

from agent_magics.approval.actions import Action
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import run_on_thread
from agent_magics.dispatch.results.values import own_attributes
from agent_magics.dispatch.schema.docstring import parse_docstring
from agent_magics.dispatch.schema.generation import derive_parameters, find_optional
from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import AgentMagicsError, FatalError, RespondToModel, typed_message
from agent_magics.protocol.tools import FreeformToolSpec, FunctionToolSpec, LocalShellSpec, ToolSpec
from agent_magics.text.brief import meant


class Preparation:
    """Runs a tool's `init` once before its first call, also where several calls arrive at a time.

    If it fails, the next call tries again.
    """

    def __init__(self, init: Callable[[], Any]) -> None:
        self._init = init
        self._lock = threading.Lock()
        self._made = False
        self._value: object = None

    def __reduce__(self) -> Any:  # locks and loaded models are not copied
        return Preparation, (self._init,)

    def _make(self) -> object:
        with self._lock:
            if not self._made:
                self._value = self._init()
                self._made = True
            return self._value

    async def value(self, name: str) -> Any:
        """Return the result of `init`, which runs on a thread of our pool.

        Raises:
            RespondToModel: it raised.
        """
        if self._made:
            return self._value
        try:
            return await run_on_thread(self._make)
        except (AgentMagicsError, asyncio.CancelledError):
            raise
        except BaseException as error:
            message = f"{name} was not run: getting it ready raised {typed_message(error)}"
            raise RespondToModel(message) from error


P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
Assess = Callable[[Mapping[str, Any], ToolContext], list[Action]]
Mutating = Callable[[Mapping[str, Any]], bool]
InOwnWords = Callable[[dict[str, Any]], dict[str, Any]]

# Seconds that a call of a person's tool may take where the tool does not say.
DEFAULT_TIMEOUT = 600.0
_NUMBERS = itertools.count(1)
_NAME_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options of `@tool`.

    Attributes:
        parallel: calls may run side by side, on threads of our own pool where the tool is sync.
        mutating: a call may change something; under ``untrusted`` it is asked about. A function
            gets the arguments by name and decides for one call.
        strict: the provider may enforce the schema, where the schema allows that.
        inline: run directly on the engine's loop; only for work well under a millisecond.
        own: a tool of this package: an async one runs on the engine's loop.
        assess: returns the actions of a call, for approval.
        freeform: (syntax, definition) of a grammar; the tool then takes plain text as well.
        native: offered as the Responses API's own shell call, not as a function.
        group: the tool makes other calls, which take their own places in the order.
        timeout: seconds a call may take, not counting the time its questions wait.
        init: prepares the tool, once, before its first call.
        in_own_words: renames arguments of similar tools that models know to its own.
        number: increases with each `@tool`; of two definitions the newer one holds.
    """

    name: str
    parallel: bool = False
    mutating: bool | Mutating = True
    strict: bool = True
    inline: bool = False
    own: bool = False
    assess: Assess | None = None
    freeform: tuple[str, str] | None = None
    native: bool = False
    group: bool = False
    timeout: float | None = None
    init: Preparation | None = None
    in_own_words: InOwnWords | None = None
    number: int = field(default=0, compare=False)


# Those that the person gives, in order.
_TO_GIVE = {
    each.name: each.type for each in fields(ToolOptions) if each.name not in ("own", "number")
}


class Tool(Protocol):
    """A tool of a catalogue: a function marked by `@tool`, or an object that stands for one."""

    @property
    def tool_options(self) -> ToolOptions:
        """The options of `@tool`."""

    @property
    def spec(self) -> FunctionToolSpec:
        """The specification for models."""

    # Parameters and results of tools are of any type.
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it by hand."""


class ToolFunction(Tool, Protocol[P, R_co]):
    """A function marked by `@tool`; it is called as before.

    Attributes:
        __name__: its own name; the tool's is `tool_options.name`.
    """

    __name__: str

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself."""

    @property
    def aio(self) -> Callable[P, Coroutine[Any, Any, Any]]:
        """The coroutine function that runs it; it returns what the function returns."""


class _DerivedSpec(FunctionToolSpec):
    """A spec that is derived from the function at the first access of a field."""

    def __init__(self, fn: Callable[..., Any], options: ToolOptions) -> None:
        self._fn, self._options = fn, options
        self.name = options.name

    def __getattr__(self, field: str) -> Any:
        if field not in ("description", "parameters", "strict", "strict_reason"):
            raise AttributeError(field)
        parameters, strict, reason = derive_parameters(self._fn)
        if not self._options.strict:
            strict, reason = False, "strict=False was asked for"
        elif strict and self._options.own and (optional := find_optional(parameters)):
            # In strict mode a model writes every argument; ours are many, and in every request.
            strict, reason = False, f"{optional}: may be left out"
        self.parameters, self.strict, self.strict_reason = parameters, strict, reason
        self.description = parse_docstring(self._fn.__doc__).description
        return self.__dict__[field]


@overload
def tool(fn: Callable[P, R_co]) -> ToolFunction[P, R_co]: ...
@overload
def tool(
    *,
    name: str | None = None,
    parallel: bool = False,
    mutating: bool | Mutating = True,
    strict: bool = True,
    inline: bool = False,
    assess: Assess | None = None,
    freeform: tuple[str, str] | None = None,
    native: bool = False,
    group: bool = False,
    timeout: float | None = DEFAULT_TIMEOUT,
    init: Callable[[], Any] | None = None,
    in_own_words: InOwnWords | None = None,
) -> Callable[[Callable[P, R_co]], ToolFunction[P, R_co]]: ...
def tool(fn: Any = None, **options: Any) -> Any:
    """Make a function a tool that a model can call; it stays an ordinary function.

    The name, the description (from the docstring), the parameters' descriptions (Google, NumPy or
    reST docstrings, or ``Annotated[..., Field(description=...)]``) and the JSON schema are derived
    from the function. A parameter annotated `ToolContext` gets the call's context and is no part of
    the schema. Sync and async functions and generators (whose values are shown as progress) are
    supported.

    Args:
        fn: the function, when used as plain ``@tool``.
        name: the name the model calls; by default the function's own.
        parallel: calls may run side by side; a sync function then runs on a thread, not on the
            notebook's main thread.
        mutating: whether a call may change something; False means it is never asked about. Or a
            function that decides for one call, given its arguments in a dict.
        strict: allow the provider to enforce the schema exactly.
        inline: run on the engine's loop; only for work well under a millisecond.
        assess: returns the actions of a call with given arguments, for approval.
        freeform: (syntax, definition) of a grammar for tools that take plain text.
        native: offer it as the Responses API's own shell call (``local_shell``).
        group: its arguments are `calls` of other tools, which take their own places in the order.
        timeout: seconds a call may take, ten minutes by default, None for any time. After that the
            call is stopped, and the model gets an error. Work on a thread cannot be stopped from
            outside: it should check `ctx.cancelled`.
        init: a plain function without parameters that runs once, before the first call, on a
            thread; its result is `ctx.ready`. For resources that take long to load.

    Returns:
        The same function object, with `.spec` and `.aio` added.

    Raises:
        FatalError: an option is not known or does not fit, or `fn` is not a function.
    """
    if fn is None:
        return functools.partial(tool, **options)
    routine: Any = fn  # `isroutine` would narrow it to kinds that take no attributes
    if not inspect.isroutine(routine):
        raise FatalError(f"@tool takes a function, not {fn!r}; decorate its method or a small def.")
    _check_options(options)
    _check_timeout(fn, options.get("timeout"))
    if options.get("init") is not None:
        options["init"] = _prepared(fn, options["init"])
    own = (getattr(fn, "__module__", "") or "").startswith("agent_magics.tools.")
    options.setdefault("timeout", None if own else DEFAULT_TIMEOUT)
    name = options.pop("name", None)
    settings = ToolOptions(
        name=checked_name(fn.__name__ if name is None else name),
        own=own,
        number=next(_NUMBERS),
        **options,
    )
    try:
        fn.tool_options = settings
    except AttributeError:  # built-in functions and bound methods take no attributes
        raise FatalError(
            f"@tool cannot be put on {settings.name!r} itself; wrap it in a small def."
        ) from None
    fn.spec = _DerivedSpec(fn, settings)
    fn.aio = fn if inspect.iscoroutinefunction(fn) else functools.partial(asyncio.to_thread, fn)
    return fn


def _check_options(options: Mapping[str, Any]) -> None:
    if not options.keys() <= _TO_GIVE.keys():
        unknown = sorted(options.keys() - _TO_GIVE.keys())
        public = (name for name in _TO_GIVE if name != "in_own_words")
        raise FatalError(f"@tool has no option {unknown[0]!r}; {meant(unknown[0], public)}")
    for name, value in options.items():
        if name not in ("name", "timeout", "init"):  # which are checked where they are used
            check(f"@tool: {name}", value, _TO_GIVE[name])


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
    """Return `name` if every provider accepts it.

    Raises:
        FatalError: it does not have the accepted form.
    """
    if not (isinstance(name, str) and 0 < len(name) <= 64 and _NAME_ALPHABET.issuperset(name)):
        raise FatalError(
            f"{name!r} cannot be a tool's name: use 1 to 64 letters, digits, _ or - "
            "(@tool(name=...) sets another one)."
        )
    return name


def is_tool(value: object) -> TypeGuard[Tool]:
    """Return whether `value` is a function marked by `@tool`, or an object that stands for one.

    It may be any variable of a person's, so none of its code is run.
    """
    held = own_attributes(value.__func__ if type(value) is MethodType else value)
    return callable(value) and type(held.get("tool_options")) is ToolOptions


def as_tool(fn: Callable[..., Any]) -> Tool:
    """Return `fn` as a tool; a plain function is marked by ``@tool`` with its defaults."""
    return fn if is_tool(fn) else tool(fn)


def offered_specs(fn: Tool, *, freeform: bool = True) -> ToolSpec:
    """Return the spec to offer a model: freeform where the tool has a grammar, else function.

    Args:
        fn: the tool.
        freeform: False for a model that supports only functions.
    """
    options = fn.tool_options
    if options.native:
        return LocalShellSpec()
    if options.freeform is None or not freeform:
        return fn.spec
    syntax, definition = options.freeform
    return FreeformToolSpec(options.name, fn.spec.description, syntax, definition)
