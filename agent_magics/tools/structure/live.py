"""Describes names of the live kernel: type, signature, documentation, where they are defined.

Law: none of the person's code runs. Attributes are read where they are stored, so no property, no
`__getattr__` and no `__repr__` of theirs is called; signatures are read from code objects.
"""

import inspect
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.values import (
    bases_of,
    describe_value,
    kind_of,
    members_of,
    own_attributes,
    short_value,
    type_name,
)

# Names that nobody has assigned.
OF_IPYTHON = frozenset(("In", "Out", "exit", "quit", "get_ipython", "open"))
_LONGEST_DOC = 1_000  # characters
_NOTHING = object()
_FUNCTION: Any = vars(types.FunctionType)
_CODE, _DOC = _FUNCTION["__code__"], _FUNCTION["__doc__"]
_DEFAULTS, _KEYWORD_DEFAULTS = _FUNCTION["__defaults__"], _FUNCTION["__kwdefaults__"]
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"]
_PARTS: dict[type, str] = {staticmethod: "__func__", classmethod: "__func__", property: "fget"}


@dataclass(frozen=True, slots=True)
class LiveName:
    """A name of the live kernel.

    Attributes:
        name: the name, with dots.
        kind: "function", "class", "property", "module", or "variable".
        detail: its signature or its type, as text.
        doc: its documentation; "" where it has none.
        where: where it is defined, as text; "" where that is not known.
    """

    name: str
    kind: str
    detail: str
    doc: str = ""
    where: str = ""

    def __str__(self) -> str:
        between = "" if self.detail.startswith("(") else ": "
        lines = [f"live kernel: {self.kind} {self.name}{between}{self.detail}"]
        if self.where:
            lines.append(f"defined in {self.where}")
        return "\n".join(filter(None, (*lines, self.doc)))


def namespace_of(ctx: ToolContext | None) -> Mapping[str, Any]:
    """Return the variables of the live kernel; none where there is none."""
    kernel = None if ctx is None else ctx.turn.live_kernel
    return {} if kernel is None else dict(kernel.namespace)  # at once: other threads may assign


def find_live(name: str, ctx: ToolContext | None) -> LiveName | None:
    """Return what the live kernel knows of a name such as ``df`` or ``model.fit``; None if nothing.

    Args:
        name: the name; "/" separates as dots do.
        ctx: the call.
    """
    first, *rest = name.replace("/", ".").strip(".").split(".")
    value = namespace_of(ctx).get(first, _NOTHING)
    for part in rest:
        value = _NOTHING if value is _NOTHING else _attribute(value, part)
    return None if value is _NOTHING else _describe(name, value)


def _attribute(value: object, name: str) -> object:
    """Return an attribute as it is stored, without calling a descriptor."""
    if issubclass(type(value), types.ModuleType):  # `isinstance` would ask the value
        return _MODULE_DICT.__get__(value).get(name, _NOTHING)
    held = own_attributes(value)
    if name in held:
        return held[name]
    kind = value if issubclass(type(value), type) else type(value)
    for base in bases_of(kind):  # type: ignore[arg-type]
        if name in members_of(base):
            return members_of(base)[name]
    return _NOTHING


def _describe(name: str, value: object) -> LiveName:
    kind = type(value)
    if kind in _PARTS:
        part = _PARTS[kind]
        inner = members_of(kind)[part].__get__(value)
        found = _describe(name, inner)
        return replace(found, kind="property") if kind is property else found
    if kind is types.MethodType:
        value = types.MethodType.__dict__["__func__"].__get__(value)
        kind = type(value)
    if kind is types.FunctionType:
        code = _CODE.__get__(value)
        doc = _DOC.__get__(value)
        where = f"{_file_words(code.co_filename)}, line {code.co_firstlineno}"
        return LiveName(name, "function", _signature(value, code), _doc(doc), where)
    if issubclass(kind, type):
        return _describe_class(name, value)  # type: ignore[arg-type]
    if issubclass(kind, types.ModuleType):
        stored = _MODULE_DICT.__get__(value)
        file = stored.get("__file__")
        return LiveName(
            name,
            "module",
            type_name(value),
            _doc(stored.get("__doc__")),
            file if type(file) is str else "",
        )
    detail = describe_value(value)
    short = short_value(value)
    known = _class_place(kind)
    where = f"{known}, its class" if known else ""
    sort = "function" if kind_of(value) == "function" else "variable"
    return LiveName(name, sort, f"{detail} = {short}" if short else detail, "", where)


def _describe_class(name: str, kind: type) -> LiveName:
    start = next(
        (members_of(base)["__init__"] for base in bases_of(kind) if "__init__" in members_of(base)),
        None,
    )
    detail = ""
    if type(start) is types.FunctionType:
        detail = _signature(start, _CODE.__get__(start))
    bases = [type.__dict__["__name__"].__get__(base) for base in bases_of(kind)[1:-1]]
    doc = _doc(members_of(kind).get("__doc__"))
    inherits = f"bases: {', '.join(bases)}\n" if bases else ""
    return LiveName(name, "class", detail or "()", f"{inherits}{doc}".strip(), _class_place(kind))


def _class_place(kind: type) -> str:
    """Return the file of a class, by a function in it or by its module; "" where neither says."""
    for member in members_of(kind).values():
        if type(member) is types.FunctionType:
            code = _CODE.__get__(member)
            if not code.co_filename.startswith("<"):
                return _file_words(code.co_filename)
    module = type.__dict__["__module__"].__get__(kind)
    held = sys.modules.get(module) if type(module) is str and module != "builtins" else None
    if type(held) is not types.ModuleType:
        return ""
    file = _MODULE_DICT.__get__(held).get("__file__")
    return file if type(file) is str else ""


def _file_words(file: str) -> str:
    """Return a file's name for messages; cells run from files that no one can open."""
    return "a cell of the notebook" if "ipykernel_" in file or file.startswith("<") else file


def _signature(function: Any, code: types.CodeType) -> str:
    """Return a function's parameters with plain defaults, from its code object."""
    names = code.co_varnames
    given, only = code.co_argcount, code.co_kwonlyargcount
    defaults = _DEFAULTS.__get__(function) or ()
    keyword = _KEYWORD_DEFAULTS.__get__(function) or {}
    parts: list[str] = []
    for number, name in enumerate(names[:given]):
        at = number - (given - len(defaults))
        parts.append(f"{name}={_default(defaults[at])}" if at >= 0 else name)
        if number + 1 == code.co_posonlyargcount:
            parts.append("/")
    end = given + only
    if code.co_flags & inspect.CO_VARARGS:
        parts.append(f"*{names[end]}")
        end += 1
    elif only:
        parts.append("*")
    parts += [
        f"{name}={_default(keyword[name])}" if name in keyword else name
        for name in names[given : given + only]
    ]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append(f"**{names[end]}")
    return f"({', '.join(parts)})"


def _default(value: object) -> str:
    return short_value(value) or "…"


def _doc(text: object) -> str:
    return inspect.cleandoc(text)[:_LONGEST_DOC] if type(text) is str else ""
