"""Copies values before live code runs, within a budget of time and memory.

A value that is too large to copy is saved as an outline: a change of the outline is detected, but
cannot be undone. No method of a foreign class is called to compare or show a value: elements are
the same if they are the same object.
"""

import hashlib
from collections.abc import Callable, Iterable
from itertools import islice
from operator import eq
from typing import Any, Protocol

from agent_magics.dispatch.results.values import Types, estimate_size, loaded, made_by

# Elements of lists and dicts that one run may copy, all together.
MOST_ELEMENTS = 100_000
_DEEPEST = 8
# Columns of a table whose values are compared; each takes some 20 microseconds.
_MOST_COLUMNS = 10_000


class Saved(Protocol):
    """The saved state of a value.

    Attributes:
        value: the value; one that has taken its place may be set.
    """

    value: Any

    @property
    def can_be_put_back(self) -> bool:
        """Whether all of it can be: not where only an outline is known."""

    def is_changed(self) -> bool:
        """Return whether the value has changed since."""

    def put_back(self) -> Any:
        """Restore the saved state; return the same object where that is possible."""


class CopyBudget:
    """The bytes that may still be copied or compared in this run.

    Attributes:
        held: the bytes of the copies.
    """

    def __init__(self, size: int, elements: int = MOST_ELEMENTS) -> None:
        self.size, self.held = size, 0
        self.elements = elements

    def take(self, size: int, *, is_held: bool = True) -> bool:
        """Subtract `size` bytes if they are available; return whether they were."""
        if size > self.size:
            return False
        self.size -= size
        self.held += size * is_held
        return True


def save(value: Any, budget: CopyBudget, *, is_compared: bool = False) -> Saved | None:
    """Save the state of `value`; None where it is immutable, or changes cannot be detected.

    Args:
        value: anything.
        budget: for the copies; what exceeds it is saved as an outline.
        is_compared: whether it is saved to detect changes alone, for which an array is not copied.
    """
    return _save(value, budget, is_compared, ())


def _save(
    value: Any, budget: CopyBudget, is_compared: bool, above: tuple[int, ...]
) -> Saved | None:
    """Do what `save` does; `above` holds the ids of the containers around the value."""
    kind = type(value)
    if kind in _EDITABLE or kind is tuple:
        return _save_container(value, budget, is_compared, above)
    root, name = made_by(kind)
    if (root, name) == ("numpy", "ndarray"):
        if not value.dtype.hasobject and budget.take(value.nbytes, is_held=not is_compared):
            return _Outline(value, _digest) if is_compared else _SavedArray(value)
        return _Outline(value, lambda array: (array.shape, array.dtype))
    if root == "pandas" and name in ("DataFrame", "Series"):
        if budget.take(estimate_size(value)):
            return _SavedFrame(value)
        return _Outline(value, lambda frame: (frame.shape, frame.iloc[:0].copy()), _same_outline)
    return None


# -- lists, dicts and sets, as deep as they are plain ----------------------------------------------

_PLAIN = Types(str, int, float, bool, type(None), bytes)
_EDITABLE = Types(list, dict, set, bytearray)
_NESTED = Types(list, dict, tuple)


def _save_container(
    value: Any, budget: CopyBudget, is_compared: bool, above: tuple[int, ...]
) -> Saved | None:
    if id(value) in above:
        return None
    too_deep = len(above) > _DEEPEST
    if too_deep or len(value) > budget.elements or not budget.take(8 * len(value)):
        return _Outline(value, len)
    budget.elements -= len(value)
    elements: Any = value if isinstance(value, tuple) else value.copy()
    inner: list[tuple[Any, Saved]] = []
    if type(value) in _NESTED:
        within = (*above, id(value))
        places = elements.items() if isinstance(elements, dict) else enumerate(elements)
        may_change = [(place, each) for place, each in places if type(each) not in _PLAIN]
        saved = ((place, _save(each, budget, is_compared, within)) for place, each in may_change)
        inner = [(place, each) for place, each in saved if each is not None]
    if isinstance(value, tuple) and not inner:
        return None  # nothing in it can change
    return _SavedContainer(value, elements, inner)


class _SavedContainer:
    """A saved list, dict, set or tuple: its elements by reference, and what can change in them.

    Args:
        value: the container.
        elements: a copy of it; of a tuple itself.
        inner: the saved ones of its elements, with their indexes or keys.
    """

    def __init__(self, value: Any, elements: Any, inner: list[tuple[Any, Saved]]) -> None:
        self.value = value
        self._elements = elements
        self._inner = inner

    @property
    def can_be_put_back(self) -> bool:
        """Whether it and all in it can be."""
        return all(each.can_be_put_back for _, each in self._inner)

    def is_changed(self) -> bool:
        return not _same(self.value, self._elements) or any(
            each.is_changed() for _, each in self._inner
        )

    def put_back(self) -> Any:
        elements = self._restored()
        if isinstance(self.value, tuple):
            return elements
        if isinstance(self.value, (list, bytearray)):
            self.value[:] = elements
        else:
            self.value.clear()
            self.value.update(elements)
        return self.value

    def _restored(self) -> Any:
        """Restore what has changed inside; return the elements, some of them replaced by copies.

        What has not changed stays the same object, which other variables may name.
        """
        elements = self._elements
        restored = [(place, each.put_back()) for place, each in self._inner if each.is_changed()]
        others = {place: now for place, now in restored if now is not elements[place]}
        if not others:
            return elements
        if isinstance(elements, dict):
            return {**elements, **others}
        return type(elements)(others.get(at, each) for at, each in enumerate(elements))


def _same(now: Any, before: Any) -> bool:
    if len(now) != len(before):
        return False
    if isinstance(now, bytearray):
        return bool(now == before)
    if isinstance(now, set):
        return set(map(id, now)) == set(map(id, before))
    if isinstance(now, dict):
        pairs = zip(now.items(), before.items(), strict=True)
        return all(a is c and b is d for (a, b), (c, d) in pairs)
    return all(a is b for a, b in zip(now, before, strict=True))


# -- arrays and tables -----------------------------------------------------------------------------

_LABELS = Types(str, bytes, int, float, complex, bool)
_LABELLING = ("numpy", "pandas", "datetime", "decimal")  # packages of classes of labels


class _SavedArray:
    """A saved NumPy array."""

    can_be_put_back = True

    def __init__(self, array: Any) -> None:
        self.value = array
        self._copy = array.copy()

    def is_changed(self) -> bool:
        now, before = self.value, self._copy
        if now.shape != before.shape or now.dtype != before.dtype:
            return True
        # Bytes, so that NaN equals itself.
        return bool(now.tobytes() != before.tobytes())

    def put_back(self) -> Any:
        if self.value.shape == self._copy.shape and self.value.flags.writeable:
            self.value[...] = self._copy
            return self.value
        return self._copy


def _digest(array: Any) -> Any:
    return array.shape, array.dtype, hashlib.blake2b(array.tobytes()).digest()


class _SavedFrame:
    """A saved pandas table; under copy-on-write the copy takes no memory until a change."""

    can_be_put_back = True

    def __init__(self, frame: Any) -> None:
        self.value = frame
        self._copy = frame.copy(deep=not _copies_on_write())

    def is_changed(self) -> bool:
        now, before = self.value, self._copy
        if now.shape != before.shape or not _same_form(now, before):
            return True
        if not _same_index(now.index, before.index):
            return True
        if now.ndim == 1:
            return not _same_column(now, before)
        pairs = zip(now.items(), before.items(), strict=True)
        return not all(_same_column(a, b) for (_, a), (_, b) in islice(pairs, _MOST_COLUMNS))

    def put_back(self) -> Any:
        """Return the copy: a new object, since pandas cannot restore a table in place."""
        return self._copy


def _copies_on_write() -> bool:
    pandas = loaded("pandas")
    if int(pandas.__version__.split(".")[0]) >= 3:
        return True
    return pandas.get_option("mode.copy_on_write") is True


def _same_column(now: Any, before: Any) -> bool:
    if now.dtype != before.dtype:
        return False
    numpy = loaded("numpy")
    if isinstance(now.dtype, numpy.dtype):
        present, saved = now.to_numpy(), before.to_numpy()
        same_memory = present.__array_interface__["data"] == saved.__array_interface__["data"]
        if same_memory and present.strides == saved.strides:
            return True
        if present.dtype.hasobject:
            return all(a is b for a, b in zip(present, saved, strict=True))
        return bool(present.tobytes() == saved.tobytes())
    return bool(now.equals(before))


def _same_outline(now: Any, before: Any) -> bool:
    return bool(now[0] == before[0]) and _same_form(now[1], before[1])


def _same_form(now: Any, before: Any) -> bool:
    """Return whether all but the values and the labels of the rows are the same."""
    if not _same_kind(now.index, before.index):
        return False
    if now.ndim == 1:
        return _same_label(now.name, before.name) and bool(now.dtype == before.dtype)
    return _same_index(now.columns, before.columns) and list(now.dtypes) == list(before.dtypes)


def _same_kind(now: Any, before: Any) -> bool:
    """Return whether two indexes have the same type of labels, and the same names."""
    return bool(now.dtype == before.dtype) and _same_labels(now.names, before.names)


def _same_index(now: Any, before: Any) -> bool:
    """Return whether two indexes are the same."""
    if len(now) != len(before) or not _same_kind(now, before):
        return False
    if now.is_(before):  # the same labels in memory
        return True
    return _same_labels(now, before) if now.dtype == object else bool(now.equals(before))


def _same_labels(now: Iterable[Any], before: Iterable[Any]) -> bool:
    now, before = tuple(now), tuple(before)
    return len(now) == len(before) and all(map(_same_label, now, before))


def _same_label(now: Any, before: Any) -> bool:
    """Return whether two labels are the same; those of foreign classes are not asked."""
    kind = type(now)
    if now is before or kind is not type(before):
        return now is before
    if kind is tuple:  # of a MultiIndex
        return _same_labels(now, before)
    # By their texts, so that NaN equals itself.
    return (kind in _LABELS or made_by(kind)[0] in _LABELLING) and repr(now) == repr(before)


class _Outline:
    """The outline of a value that is too large to be copied."""

    can_be_put_back = False

    def __init__(
        self, value: Any, outline: Callable[[Any], Any], same: Callable[[Any, Any], bool] = eq
    ) -> None:
        self.value, self._outline, self._same = value, outline, same
        self._before = outline(value)

    def is_changed(self) -> bool:
        return not self._same(self._outline(self.value), self._before)

    def put_back(self) -> Any:
        return self.value
