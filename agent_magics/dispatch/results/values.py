"""Says what a Python value is and how much memory it takes, without running code of its own.

A value may be huge, not computed yet, or hostile: its ``repr``, ``len``, ``==``, attributes and
even its ``__class__`` may do anything. So types are taken from `type` alone, builtin ones are asked
through the builtin's own methods, and libraries are recognised by names and never imported.
"""

import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from agent_magics.dispatch.output import type_name

# Elements of a container that are looked at; the rest is taken to be like them.
_SAMPLE = 50
_DEEPEST = 3
# Named columns; a frame may have thousands.
COLUMNS = 20

_SCALARS = frozenset((type(None), bool, int, float, complex))
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
# What computes only when it is asked to; even its columns may cost a plan.
_LAZY_ROOTS = frozenset(("dask", "pyspark", "ibis", "duckdb", "modin"))


def bases_of(kind: type) -> tuple[type, ...]:
    """Return the classes of `kind`, also where its metaclass would say otherwise."""
    bases: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return bases


def members_of(kind: type) -> Mapping[str, Any]:
    """Return what a class itself defines, also where its metaclass would say otherwise."""
    members: Mapping[str, Any] = type.__dict__["__dict__"].__get__(kind)
    return members


def library_class(value: Any) -> tuple[str, str] | None:
    """Return (library, class) where a known library made the class of `value`, or a base of it."""
    for base in bases_of(type(value)):
        known = (str(base.__module__).partition(".")[0], base.__name__)
        if known in _MEASURES:
            return known
    return None


def is_lazy(value: Any) -> bool:
    """Tell whether `value` is a plan for data rather than data."""
    kind = type(value)
    root = str(kind.__module__).partition(".")[0]
    return root in _LAZY_ROOTS or (root == "polars" and kind.__name__ == "LazyFrame")


def format_size(size: float) -> str:
    """Return a number of bytes as people write it."""
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.5 or unit == "GB":
            break
    return f"{size:.3g} {unit}" if size < 999.5 else f"{size:,.0f} {unit}"


# -- how much memory -------------------------------------------------------------------------------


def estimate_size(value: Any, _depth: int = 0) -> int:
    """Return about how many bytes `value` takes; never copies it, and looks at a sample only."""
    kind = type(value)
    if kind in _SCALARS:
        return 32
    if isinstance(kind, type) and issubclass(kind, _TEXTS):
        return _base_length(value, _TEXTS) or 0
    known = library_class(value)
    if known is not None:
        try:
            return int(_MEASURES[known](value))
        except Exception:  # half built, or closed: the library's own failure
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


def _object_size(value: Any, depth: int) -> int:
    held = own_attributes(value)
    return 64 if not held else 64 + _container_size(held, len(held), depth)


# How an instance's own attributes are reached, without asking the instance.
_STORES = (types.GetSetDescriptorType, types.MemberDescriptorType)


def own_attributes(value: Any) -> dict[str, Any]:
    """Return the instance's own attributes as they are stored; empty where it has none."""
    if issubclass(type(value), (type, types.ModuleType)):
        return {}
    for base in bases_of(type(value)):
        store = members_of(base).get("__dict__")
        if type(store) in _STORES:  # not a property of somebody's
            held = store.__get__(value)
            return held if type(held) is dict else {}
    return {}


def _base_length(value: Any, bases: tuple[type, ...]) -> int | None:
    """Return the length as the builtin base counts it; None where there is no such base."""
    for base in bases:
        if issubclass(type(value), base):
            return int(base.__len__(value))  # type: ignore[attr-defined] - all of them have one
    return None


_MEASURES: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("pandas", "DataFrame"): lambda v: v.memory_usage(index=True, deep=False).sum(),
    ("pandas", "Series"): lambda v: v.memory_usage(index=True, deep=False),
    ("pandas", "Index"): lambda v: v.memory_usage(deep=False),
    ("numpy", "ndarray"): lambda v: v.nbytes,
    ("numpy", "generic"): lambda v: v.nbytes,
    ("polars", "DataFrame"): lambda v: v.estimated_size(),
    ("polars", "Series"): lambda v: v.estimated_size(),
    ("pyarrow", "Table"): lambda v: v.nbytes,
    ("torch", "Tensor"): lambda v: v.numel() * v.element_size(),
    ("xarray", "DataArray"): lambda v: v.nbytes,
    ("xarray", "Dataset"): lambda v: v.nbytes,
    ("PIL", "Image"): lambda v: v.size[0] * v.size[1] * len(v.getbands()),
}


# -- what it is ------------------------------------------------------------------------------------


def describe_value(value: Any, *, least: int = 0) -> str:
    """Say in one line what `value` is: type, shape, types of its parts, size.

    Args:
        value: anything.
        least: bytes below which the size is left out; it differs between versions of libraries.
    """
    name = type_name(value)
    try:
        words = _shape_words(value, least)
    except Exception:  # the library's own failure
        words = ["cannot be looked into"]
    return ", ".join([name, *words])


def _shape_words(value: Any, least: int) -> list[str]:
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
        return [*_SHAPES.get(known, _any_shape)(value), *_size_words(value, least)]
    length = _base_length(value, _CONTAINERS)
    if length is None:
        return []
    return [f"{length:,} element{'' if length == 1 else 's'}", *_size_words(value, least)]


def _size_words(value: Any, least: int) -> list[str]:
    size = estimate_size(value)
    return [format_size(size)] if size >= least else []


def _any_shape(value: Any) -> list[str]:
    shape = getattr(value, "shape", None)
    dtype = getattr(value, "dtype", None)
    words = [f"shape {tuple(shape)}"] if shape else []
    return [*words, str(dtype)] if dtype is not None else words


def _frame_shape(frame: Any) -> list[str]:
    rows, columns = frame.shape
    return [f"{rows:,} rows x {columns:,} columns ({column_words(frame)})"]


def column_words(frame: Any) -> str:
    """Return a frame's first columns with their types."""
    names = list(frame.columns[:COLUMNS])
    dtypes = frame.dtypes
    dtypes = dtypes.iloc[:COLUMNS] if hasattr(dtypes, "iloc") else dtypes[:COLUMNS]
    words = [f"{name} {dtype}" for name, dtype in zip(names, dtypes, strict=True)]
    more = len(frame.columns) - len(words)
    return ", ".join(words) + (f", … {more:,} more" if more else "")


def _series_shape(series: Any) -> list[str]:
    return [f"{len(series):,} values", str(series.dtype)]


def _picture_shape(picture: Any) -> list[str]:
    return [f"{picture.size[0]} x {picture.size[1]} pixels, mode {picture.mode}"]


_SHAPES: dict[tuple[str, str], Callable[[Any], list[str]]] = {
    ("pandas", "DataFrame"): _frame_shape,
    ("polars", "DataFrame"): _frame_shape,
    ("pandas", "Series"): _series_shape,
    ("pandas", "Index"): _series_shape,
    ("polars", "Series"): _series_shape,
    ("PIL", "Image"): _picture_shape,
    ("xarray", "Dataset"): lambda value: [f"dimensions {dict(value.sizes)}"],
}


def kind_of(value: Any) -> str:
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
        return _KINDS.get(known, "array")
    names = {name for base in bases_of(kind)[:-1] for name in members_of(base)}
    return "model" if {"fit", "get_params"} <= names else "data"


_KINDS = {
    ("pandas", "DataFrame"): "frame",
    ("polars", "DataFrame"): "frame",
    ("pyarrow", "Table"): "frame",
    ("pandas", "Series"): "series",
    ("pandas", "Index"): "series",
    ("polars", "Series"): "series",
    ("numpy", "generic"): "data",
    ("PIL", "Image"): "picture",
}


def short_value(value: Any, longest: int = 60) -> str:
    """Return a plain scalar or the start of a text as code; "" for everything else."""
    kind = type(value)
    if kind is int and value.bit_length() > 4 * longest:
        return ""
    if kind in _SCALARS:
        return repr(value)
    if kind in (str, bytes):
        return repr(value) if len(value) <= longest else repr(value[:longest]) + "…"
    return ""


def loaded(library: str) -> Any:
    """Return a library that somebody has imported already, or None."""
    return sys.modules.get(library)
