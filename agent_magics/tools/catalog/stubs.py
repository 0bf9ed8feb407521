"""Tools as typed Python stubs: how code calls them, in a line each."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_magics.dispatch.signature import context_parameter
from agent_magics.dispatch.tool import is_tool
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import ConfiguredToolSpec, FunctionToolSpec

# Code inside code would hold the main thread twice.
NOT_FROM_CODE = frozenset(("python",))
# Code seldom looks for tools; whoever reads this list can call the search itself.
_NOT_LISTED = NOT_FROM_CODE | {"tool_search"}

_HOW_CALLED = (
    "The code can call these tools as functions, also with await; they return values, and raise "
    "where a call fails:"
)

# Modules in front of a class say nothing to whoever only passes its objects on.
_MODULES = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")
_LONGEST_DEFAULT = 40
_MOST_PARAMETERS, _SHOWN_PARAMETERS = 5, 3


def call_signature(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a tool for its callers: without the context that is handed in."""
    signature = inspect.signature(fn)
    context = context_parameter(fn)
    parameters = [p for name, p in signature.parameters.items() if name != context]
    return signature.replace(parameters=parameters)


def stub_of(name: str, fn: Callable[..., Any]) -> str:
    """Return ``name(path: str, limit: int = 100) -> DataFrame``."""
    signature = call_signature(fn)
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
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {_type_words(returned)}"
    if is_tool(fn) and fn.tool_options.own:  # the other member is what a model would read
        arrow = arrow.partition(" | ")[0]
    return f"{name}({', '.join(parts)}){arrow}"


def _parameter_words(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    words = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        words += f": {_type_words(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        default = repr(parameter.default)
        words += f" = {default if len(default) <= _LONGEST_DEFAULT else '...'}"
    return words


def _type_words(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULES.sub("", text.replace("typing.", ""))


def list_stubs(functions: Iterable[tuple[str, Callable[..., Any]]]) -> str:
    """Return the stubs of tools that code can call, a line each; "" where there is none."""
    lines = []
    for name, fn in functions:
        if not name.isidentifier():
            continue
        try:
            lines.append(stub_of(name, fn))
        except (FatalError, TypeError, ValueError):  # no readable signature: help() says as much
            lines.append(f"{name}(...)")
    return "\n".join(lines)


def with_stubs(
    specs: Sequence[ConfiguredToolSpec],
    functions: Mapping[str, Callable[..., Any]],
    more: str = "",
) -> tuple[ConfiguredToolSpec, ...]:
    """Return the specs, that of `python` with how its code calls the other tools.

    Args:
        specs: all of them.
        functions: the tools that code can call, by name.
        more: a last line, on others that it can call.
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
    words = f"{spec.description}\n\n{_HOW_CALLED}\n{stubs}"
    return FunctionToolSpec(spec.name, words, spec.parameters, spec.strict, spec.strict_reason)
