"""Copies of values as they were before live code ran, cheap enough to be made for every run.

What cannot be copied cheaply is remembered by its outline alone: a change of the outline is seen,
and cannot be put back. Nothing here compares or shows a stranger's value: elements are the same if
they are the same object.
"""

from typing import Any, Protocol

from agent_magics.dispatch.values import estimate_size, loaded

# Elements of lists and dicts that one run may copy, all together.
MOST_ELEMENTS = 20_000
_DEEPEST = 8
_MOST_COLUMNS = 1_000


class Saved(Protocol):
    """What a value was.

    Attributes:
        can_be_put_back: False where only the outline is known.
    """

    can_be_put_back: bool

    def is_changed(self) -> bool:
        """Tell whether the value is another one by now."""
        ...

    def put_back(self) -> Any:
        """Return the value as it was; the same object where that is possible."""
        ...


class Purse:
    """How much may still be copied in this run."""

    def __init__(self, size: int, elements: int = MOST_ELEMENTS) -> None:
        self.size = size
        self.elements = elements

    def pay(self, size: int) -> bool:
        """Take `size` bytes out, if there are so many."""
        if size > self.size:
            return False
        self.size -= size
        return True


def save(value: Any, purse: Purse) -> Saved | None:
    """Return what `value` is now; None where it cannot change, or nobody can tell whether it did.

    Args:
        value: anything.
        purse: what may be spent on copies; what it does not pay for is kept as an outline.
    """
    kind = type(value)
    if kind in _EDITABLE or kind is tuple:
        return _SavedContainer.of(value, purse)
    root = kind.__module__.partition(".")[0]
    if root == "numpy" and kind.__name__ == "ndarray":
        if not value.dtype.hasobject and purse.pay(value.nbytes):
            return _SavedArray(value)
        return _Outline(value, lambda array: (array.shape, array.dtype))
    if root == "pandas" and kind.__name__ in ("DataFrame", "Series"):
        if purse.pay(estimate_size(value)):
            return _SavedFrame(value)
        return _Outline(value, _frame_outline)
    return None


# -- lists, dicts and sets, as deep as they are plain ----------------------------------------------

_EDITABLE = (list, dict, set, bytearray)


class _SavedContainer:
    """A plain container: its elements by reference, those that are containers saved themselves."""

    can_be_put_back = True

    def __init__(self, value: Any, elements: Any, inner: list["_SavedContainer"]) -> None:
        self._value = value
        self._elements = elements
        self._inner = inner

    @classmethod
    def of(
        cls, value: Any, purse: Purse, depth: int = 0, seen: frozenset[int] = frozenset()
    ) -> "Saved | None":
        if id(value) in seen or depth > _DEEPEST:
            return None
        if len(value) > purse.elements or not purse.pay(8 * len(value)):
            return _Outline(value, len)
        purse.elements -= len(value)
        elements = tuple(value) if isinstance(value, tuple) else value.copy()
        parts = elements.values() if isinstance(value, dict) else elements
        inner = []
        if type(value) in (list, dict, tuple):
            seen |= {id(value)}
            parts = [each for each in parts if type(each) in _EDITABLE or type(each) is tuple]
            inner = [cls.of(each, purse, depth + 1, seen) for each in parts]
        kept = [each for each in inner if isinstance(each, _SavedContainer)]
        if isinstance(value, tuple) and not kept:
            return None  # nothing in it can change
        return cls(value, elements, kept)

    def is_changed(self) -> bool:
        return not _same(self._value, self._elements) or any(
            each.is_changed() for each in self._inner
        )

    def put_back(self) -> Any:
        for each in self._inner:
            each.put_back()
        if isinstance(self._value, (list, bytearray)):
            self._value[:] = self._elements
        elif not isinstance(self._value, tuple):
            self._value.clear()
            self._value.update(self._elements)
        return self._value


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


class _SavedArray:
    can_be_put_back = True

    def __init__(self, array: Any) -> None:
        self._array = array
        self._copy = array.copy()

    def is_changed(self) -> bool:
        now, before = self._array, self._copy
        if now.shape != before.shape or now.dtype != before.dtype:
            return True
        # Bytes, so that NaN equals itself.
        return now.tobytes() != before.tobytes()

    def put_back(self) -> Any:
        if self._array.shape == self._copy.shape and self._array.flags.writeable:
            self._array[...] = self._copy
            return self._array
        return self._copy


class _SavedFrame:
    """A pandas table; where pandas copies on write, the copy costs nothing until it changes."""

    can_be_put_back = True

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._copy = frame.copy(deep=not _copies_on_write())

    def is_changed(self) -> bool:
        now, before = self._frame, self._copy
        if _frame_outline(now) != _frame_outline(before):
            return True
        if not now.index.equals(before.index):
            return True
        if now.ndim == 1:
            return not _same_column(now, before)
        columns = range(min(now.shape[1], _MOST_COLUMNS))
        return not all(_same_column(now.iloc[:, n], before.iloc[:, n]) for n in columns)

    def put_back(self) -> Any:
        """Return a table as it was: a new object, since pandas offers no way back in place."""
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
        ours, theirs = now.to_numpy(), before.to_numpy()
        same_memory = ours.__array_interface__["data"] == theirs.__array_interface__["data"]
        if same_memory and ours.strides == theirs.strides:
            return True
        if ours.dtype.hasobject:
            return all(a is b for a, b in zip(ours, theirs, strict=True))
        return bool(ours.tobytes() == theirs.tobytes())
    return bool(now.equals(before))


def _frame_outline(frame: Any) -> Any:
    if frame.ndim == 1:
        return frame.shape, str(frame.name), frame.dtype
    names = [str(name) for name in frame.columns[:_MOST_COLUMNS]]
    return frame.shape, names, list(frame.dtypes.iloc[:_MOST_COLUMNS])


class _Outline:
    """What can be seen of a value that is too large to be copied."""

    can_be_put_back = False

    def __init__(self, value: Any, outline: Any) -> None:
        self._value, self._outline = value, outline
        self._before = outline(value)

    def is_changed(self) -> bool:
        return bool(self._outline(self._value) != self._before)

    def put_back(self) -> Any:
        return self._value
