"""Describes a Python value's type and memory without running its code.

A value may be huge, not computed yet, or hostile: its ``repr``, ``len``, ``==``, attributes and
even its ``__class__`` may do anything. So types are taken from `type` alone, builtin ones are read
through the builtin's own methods, and libraries are recognised by names and never imported.
"""

import sys
import types
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any

from agent_magics.dispatch.results.cutting import encodable
from agent_magics.text.brief import brief, number_of


class Types:
    """A set of classes, compared by identity: `in` of a set or tuple would call ``==`` and ``hash``
    of a foreign class's metaclass.
    """

    def __init__(self, *kinds: type) -> None:
        self._kinds = {id(kind): kind for kind in kinds}

    def __contains__(self, kind: object) -> bool:
        return id(kind) in self._kinds

    def __or__(self, other: "Types") -> "Types":
        return Types(*self._kinds.values(), *other._kinds.values())


_SCALARS = Types(type(None), bool, int, float, complex)
# Elements of a container that are looked at; the rest is taken to be like them.
_SAMPLE = 50
_DEEPEST = 3
_MEASURED = 200  # columns of a frame, likewise
# Named columns; a frame may have thousands.
COLUMNS = 20
# Characters of a text that are shown, of a class's name, and of a value's description.
_LONGEST, _LONGEST_NAME, _LONGEST_WORDS = 60, 200, 800

_TEXTS = (str, bytes, bytearray)
_CONTAINERS = (dict, list, tuple, set, frozenset)
_CALLABLES = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    type,
)
# Libraries that compute on demand; reading even the columns may run a query plan.
_LAZY_ROOTS = frozenset(("dask", "pyspark", "ibis", "duckdb", "modin"))


def type_name(value: object) -> str:
    """Return the type of `value` with its library, such as ``pandas.DataFrame``."""
    kind = type(value)
    package, name = made_by(kind)[0], str(type.__dict__["__qualname__"].__get__(kind))
    return brief(
        name if package in ("builtins", "__main__") else f"{package}.{name}", _LONGEST_NAME
    )


def made_by(kind: type) -> tuple[str, str]:
    """Return the (package, name) of a class, bypassing its metaclass."""
    module = type.__dict__["__module__"].__get__(kind)
    package = module.partition(".")[0] if type(module) is str else "?"
    return package, str(type.__dict__["__name__"].__get__(kind))


def safe_repr(value: object) -> str:
    """Return ``repr(value)``, or a note of the exception where that raises."""
    try:
        return plain_text(repr(value))
    except BaseException as error:  # a foreign __repr__ may raise anything, also SystemExit
        return f"<{type_name(value)}, whose repr raised {type(error).__name__}>"


def plain_text(text: str) -> str:
    """Return a text as a plain `str`; the methods of a subclass of it may be hostile."""
    return encodable("".join((text,)))


def defines(kind: type, name: str) -> bool:
    """Return whether a class or one of its bases has a member, without calling the metaclass."""
    return any(name in members_of(base) for base in bases_of(kind))


def bases_of(kind: type) -> tuple[type, ...]:
    """Return the method resolution order of `kind`, bypassing its metaclass."""
    bases: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return bases


def members_of(kind: type) -> Mapping[str, Any]:
    """Return the members that a class itself defines, bypassing its metaclass."""
    members: Mapping[str, Any] = type.__dict__["__dict__"].__get__(kind)
    return members


def library_class(value: object) -> tuple[str, str] | None:
    """Return the (library, class) of `value` where a known library defines it or a base of it.

    None for a class of somebody else that defines anew what would be read.
    """
    for base in bases_of(type(value)):
        known = made_by(base)
        if known in _KNOWN:
            return known
        if known[0] not in _LIBRARIES and not _READ.isdisjoint(members_of(base)):
            return None
    return None


def is_lazy(value: object) -> bool:
    """Return whether `value` is a query plan rather than data (polars' LazyFrame, dask, ...)."""
    package, name = made_by(type(value))
    return package in _LAZY_ROOTS or (package, name) == ("polars", "LazyFrame")


def format_size(size: float) -> str:
    """Return a number of bytes with a unit."""
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.5 or unit == "GB":
            break
    return f"{size:.3g} {unit}" if size < 999.5 else f"{size:,.0f} {unit}"


# -- how much memory -------------------------------------------------------------------------------


def estimate_size(value: object, _depth: int = 0) -> int:
    """Estimate the bytes that `value` takes from a sample of it; nothing is copied."""
    kind = type(value)
    if kind in _SCALARS:
        return 32
    if isinstance(kind, type) and issubclass(kind, _TEXTS):
        return _base_length(value, _TEXTS) or 0
    known = library_class(value)
    if known is not None:
        try:
            return int(_KNOWN[known].measure(value))
        except Exception:  # half built or closed: the library raised
            return 0
    if _depth == _DEEPEST:
        return 64
    length = _base_length(value, _CONTAINERS)
    if length is not None:
        return _container_size(value, length, _depth)
    return _object_size(value, _depth)


def _container_size(value: Any, length: int, depth: int) -> int:
    base = next(each for each in _CONTAINERS if issubclass(type(value), each))
    sample = []
    try:
        elements = base.items(value) if base is dict else base.__iter__(value)
        for element in elements:
            sample.append(element)
            if len(sample) == _SAMPLE:
                break
    except RuntimeError:  # another thread changes it
        return 64
    inner = sum(estimate_size(element, depth + 1) + 8 for element in sample)
    return 64 + inner * length // max(len(sample), 1)


def _object_size(value: object, depth: int) -> int:
    held = own_attributes(value)
    return 64 if not held else 64 + _container_size(held, len(held), depth)


# Reads an instance's attributes without calling its class.
_STORES = Types(types.GetSetDescriptorType, types.MemberDescriptorType)


def own_attributes(value: object) -> dict[str, Any]:
    """Return the instance's own attributes as they are stored; empty where it has none."""
    if issubclass(type(value), (type, types.ModuleType)):
        return {}
    for base in bases_of(type(value)):
        store: Any = members_of(base).get("__dict__")
        if type(store) in _STORES:  # not a property of a subclass
            held = store.__get__(value)
            return held if type(held) is dict else {}
    return {}


def _base_length(value: Any, bases: tuple[type[Sized], ...]) -> int | None:
    """Return the length by the builtin base's own method; None where there is no such base."""
    for base in bases:
        if issubclass(type(value), base):
            return int(base.__len__(value))
    return None


# -- what it is ------------------------------------------------------------------------------------


def describe_value(value: object, *, least: int = 0) -> str:
    """Describe `value` in one line: type, shape, types of its parts, size.

    Args:
        value: anything.
        least: bytes below which the size is left out, since it differs between library versions.
    """
    name = type_name(value)
    try:
        parts = _shape_words(value, least)
    except Exception:  # the library's own failure
        parts = ["cannot be looked into"]
    return brief(", ".join([name, *parts]), _LONGEST_WORDS)


def _shape_words(value: object, least: int) -> list[str]:
    kind = type(value)
    if kind in _SCALARS:
        return []
    if is_lazy(value):
        return ["not computed"]
    if issubclass(kind, _TEXTS):
        unit = "characters" if issubclass(kind, str) else "bytes"
        return [f"{_base_length(value, _TEXTS):,} {unit}"]
    known = library_class(value)
    if known is not None:
        return [*_KNOWN[known].shape(value), *_size_words(value, least)]
    length = _base_length(value, _CONTAINERS)
    if length is None:
        return []
    return [number_of(length, "element"), *_size_words(value, least)]


def _size_words(value: object, least: int) -> list[str]:
    size = estimate_size(value)
    return [format_size(size)] if size >= least else []


def _any_shape(value: object) -> list[str]:
    shape = getattr(value, "shape", None)
    dtype = getattr(value, "dtype", None)
    parts = [f"shape {tuple(shape)}"] if shape else []
    return [*parts, str(dtype)] if dtype is not None else parts


def _frame_shape(frame: Any) -> list[str]:
    rows, columns = frame.shape
    return [f"{rows:,} rows x {columns:,} columns ({column_words(frame)})"]


def column_words(frame: Any) -> str:
    """Return the names and types of a frame's first columns."""
    names = list(frame.columns[:COLUMNS])
    dtypes = frame.dtypes
    dtypes = dtypes.iloc[:COLUMNS] if hasattr(dtypes, "iloc") else dtypes[:COLUMNS]
    columns = [
        f"{brief(str(name), _LONGEST)} {dtype}" for name, dtype in zip(names, dtypes, strict=True)
    ]
    more = len(frame.columns) - len(columns)
    return ", ".join(columns) + (f", … {more:,} more" if more else "")


def _series_shape(series: Any) -> list[str]:
    return [f"{len(series):,} values", str(series.dtype)]


def _picture_shape(picture: Any) -> list[str]:
    return [f"{picture.size[0]} x {picture.size[1]} pixels, mode {picture.mode}"]


def kind_of(value: object) -> str:
    """Return the kind of a variable: data, frame, series, array, model, lazy, function, module."""
    kind = type(value)
    if kind is types.ModuleType or issubclass(kind, types.ModuleType):
        return "module"
    if issubclass(kind, _CALLABLES):
        return "class" if issubclass(kind, type) else "function"
    if is_lazy(value):
        return "lazy"
    known = library_class(value)
    if known is not None:
        return _KNOWN[known].kind
    names = {name for base in bases_of(kind)[:-1] for name in members_of(base)}
    return "model" if {"fit", "get_params"} <= names else "data"


def short_value(value: Any) -> str:
    """Return a plain scalar or the start of a text as code; "" for everything else."""
    kind = type(value)
    if kind is int and value.bit_length() > 4 * _LONGEST:
        return ""
    if kind in _SCALARS:
        return repr(value)
    if kind is str or kind is bytes:
        return repr(value) if len(value) <= _LONGEST else repr(value[:_LONGEST]) + "…"
    return ""


def loaded(library: str) -> Any:
    """Return a library from `sys.modules`, or None if it has not been imported."""
    return sys.modules.get(library)


# -- the known libraries ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Described:
    """How values of a library's class are described.

    Attributes:
        measure: returns the bytes of a value.
        kind: as `kind_of` returns it.
        shape: returns the parts of a description.
    """

    measure: Callable[[Any], Any]
    kind: str = "array"
    shape: Callable[[Any], list[str]] = _any_shape


def _pandas_size(value: Any) -> Any:
    return value.memory_usage(index=True, deep=False)


def _frame_size(frame: Any) -> Any:
    """Return the bytes of a pandas frame, by a part of its columns where it has thousands."""
    columns = frame.shape[1]
    part = frame if columns < 2 * _MEASURED else frame.iloc[:, :: columns // _MEASURED]
    return _pandas_size(part).sum() * columns // max(1, part.shape[1])


_KNOWN = {
    ("pandas", "DataFrame"): _Described(_frame_size, "frame", _frame_shape),
    ("pandas", "Series"): _Described(_pandas_size, "series", _series_shape),
    ("pandas", "Index"): _Described(lambda v: v.memory_usage(deep=False), "series", _series_shape),
    ("numpy", "ndarray"): _Described(lambda v: v.nbytes),
    ("numpy", "generic"): _Described(lambda v: v.nbytes, "data"),
    ("polars", "DataFrame"): _Described(lambda v: v.estimated_size(), "frame", _frame_shape),
    ("polars", "Series"): _Described(lambda v: v.estimated_size(), "series", _series_shape),
    ("pyarrow", "Table"): _Described(lambda v: v.nbytes, "frame"),
    ("torch", "Tensor"): _Described(lambda v: v.numel() * v.element_size()),
    ("xarray", "DataArray"): _Described(lambda v: v.nbytes),
    ("xarray", "Dataset"): _Described(
        lambda v: v.nbytes, shape=lambda v: [f"dimensions {dict(v.sizes)}"]
    ),
    ("PIL", "Image"): _Described(
        lambda v: v.size[0] * v.size[1] * len(v.getbands()), "picture", _picture_shape
    ),
}
_LIBRARIES = frozenset(library for library, _ in _KNOWN)
# What the functions here read of a value of a known library.
_READ = frozenset(
    (
        "__getattribute__",
        "__len__",
        "columns",
        "dtype",
        "dtypes",
        "element_size",
        "estimated_size",
        "getbands",
        "iloc",
        "memory_usage",
        "mode",
        "nbytes",
        "numel",
        "shape",
        "size",
        "sizes",
    )
)
