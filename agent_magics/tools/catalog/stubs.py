"""Writes typed Python stubs of tools, as code calls them."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_magics.dispatch.schema.signature import context_parameter
from agent_magics.dispatch.tool import is_tool
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec

# Code inside code would hold the main thread twice.
NOT_FROM_CODE = frozenset(("python",))
# Code seldom searches for tools; the model that reads this list can call the search itself.
_NOT_LISTED = NOT_FROM_CODE | {"tool_search"}

_HOW_CALLED = (
    "The code can call these tools as functions with the same arguments, also with await; they "
    "return values, and raise where a call fails:"
)

# Module prefixes of a class do not help code that only passes its objects on.
_MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")
_STARS: Mapping[object, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}
_LONGEST_DEFAULT = 40
_MOST_PARAMETERS, _SHOWN_PARAMETERS = 5, 3


def call_signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Return a tool's signature without its context parameter, as code calls it."""
    signature = inspect.signature(fn)
    context = context_parameter(fn)
    parameters = [p for name, p in signature.parameters.items() if name != context]
    return signature.replace(parameters=parameters)


def stub_of(name: str, fn: Callable[..., Any]) -> str:
    """Return a tool's signature as text: ``name(path: str, limit: int = 100) -> DataFrame``.

    Of a built-in tool only the result is said, since its own schema is always sent.
    """
    signature = call_signature(fn)
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {_type_words(returned)}"
    if is_tool(fn) and fn.tool_options.own:  # the other member is what a model would read
        return f"{name}(...){arrow.partition(' | ')[0]}"
    parts: list[str] = []
    shown = list(signature.parameters.values())
    if len(shown) > _MOST_PARAMETERS:  # the rest stands in the tool's own schema
        required = sum(each.default is each.empty for each in shown)
        del shown[max(required, _SHOWN_PARAMETERS) :]
    for parameter in shown:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(_parameter_words(parameter))
    if len(shown) < len(signature.parameters):
        parts.append("...")
    return f"{name}({', '.join(parts)}){arrow}"


def _parameter_words(parameter: inspect.Parameter) -> str:
    text = f"{_STARS.get(parameter.kind, '')}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_type_words(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = repr(parameter.default)
        text += f" = {default if len(default) <= _LONGEST_DEFAULT else '...'}"
    return text


def _type_words(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULES.sub("", text.replace("typing.", ""))


def list_stubs(functions: Iterable[tuple[str, Callable[..., Any]]]) -> str:
    """Return the signatures of tools that code can call, one per line; "" where there are none."""
    lines = []
    for name, fn in functions:
        if not name.isidentifier():
            continue
        try:
            lines.append(stub_of(name, fn))
        except (FatalError, TypeError, ValueError):  # no readable signature: as shown by help()
            lines.append(f"{name}(...)")
    return "\n".join(lines)


def with_stubs(
    specs: Sequence[ConfiguredToolSpec],
    functions: Mapping[str, Callable[..., Any]],
    more: str = "",
) -> tuple[ConfiguredToolSpec, ...]:
    """Add the signatures of the other tools to the description of `python`.

    Args:
        specs: the specifications of a request.
        functions: the tools that code can call, by name.
        more: a last line about further callables.
    """
    return tuple(
        replace(each, spec=_python_with_stubs(each.spec, functions, more))
        if each.spec.name == "python" and isinstance(each.spec, FunctionToolSpec)
        else each
        for each in specs
    )


def _python_with_stubs(
    spec: FunctionToolSpec, functions: Mapping[str, Callable[..., Any]], more: str
) -> FunctionToolSpec:
    own = list_stubs((n, fn) for n, fn in functions.items() if n not in _NOT_LISTED)
    stubs = "\n".join(filter(None, (own, more)))
    if not stubs:
        return spec
    text = f"{spec.description}\n\n{_HOW_CALLED}\n{stubs}"
    return FunctionToolSpec(spec.name, text, spec.parameters, spec.strict, spec.strict_reason)
