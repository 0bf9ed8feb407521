"""Defines what is stored under a name: a text, or a Python value of which the text is made."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from agent_magics.dispatch.results.json_text import whole_text
from agent_magics.dispatch.results.values import estimate_size


class TextSource(Protocol):
    """A text that may be too long for memory, and may still grow."""

    @property
    def size(self) -> int:
        """A measure of the text's length; it changes with every change of the text."""

    @property
    def in_memory(self) -> int:
        """The memory that it takes, in bytes or characters."""

    def pieces(self) -> Iterator[str]:
        """Yield the whole text as it is now, piece by piece."""

    def grows(self) -> bool:
        """Return whether the text may still grow."""


class StoredText:
    """A finished text in memory, as a `TextSource`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.size = self.in_memory = len(text)

    def pieces(self) -> Iterator[str]:
        """Yield the whole text."""
        yield self._text

    def grows(self) -> bool:
        """Return False."""
        return False


class Value:
    """A Python value, held by reference; its text is generated on demand.

    After `let_go` it exists only as long as something else references it.
    """

    def __init__(self, value: object) -> None:
        self._held: Callable[[], Any] = lambda: value
        self.in_memory = estimate_size(value)
        self.is_kept = True
        self._looks = 0

    @classmethod
    def read_later(cls, read: Callable[[], Any], size: int) -> "Value":
        """Return a value that is read at its first use; `size` estimates its bytes."""
        value = cls(None)
        value._held, value.in_memory = read, size
        return value

    @property
    def size(self) -> int:
        """A new number at each access, since the value may have changed."""
        self._looks += 1
        return self._looks

    def get(self) -> Any:
        """Return the value; None where it no longer exists."""
        return self._held()

    def let_go(self) -> None:
        """Replace the reference by a weak one."""
        self.in_memory, self.is_kept = 0, False
        try:
            self._held = weakref.ref(self._held())
        except TypeError:  # lists and dicts have no weak references
            self._held = lambda: None

    def pieces(self) -> Iterator[str]:
        """Yield the value's text."""
        yield whole_text(self.get())

    def grows(self) -> bool:
        """Return False: the present text is complete."""
        return False
