"""Caps list-like results, and states in the result that they are capped.

A tool shows much of little or little of much: without a `detail_level` a model explores and gets
the first results without their bodies; with "full" it gets whole results, page by page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import RespondToModel

T = TypeVar("T")

MAX_RESULTS = 200
MAX_FILES = 200
PAGE = 50  # results of one page of the full view


@dataclass(frozen=True, slots=True)
class Overflow:
    """What a capped result reports about the rest.

    Attributes:
        shown: the number of results on this page.
        total: the number of all results.
        hint: how to see others, in words.
        next_offset: the offset of the next page; None for none, and while exploring.
    """

    shown: int
    total: int
    hint: str
    next_offset: int | None = None

    def as_json(self) -> dict[str, object]:
        """Return the value of ``overflow`` in a JSON result."""
        found: dict[str, object] = {"shown": self.shown, "total": self.total, "hint": self.hint}
        return found if self.next_offset is None else {**found, "next_offset": self.next_offset}

    def __str__(self) -> str:
        how = self.hint if self.next_offset is None else f"go on with offset={self.next_offset}"
        return f"{self.shown:,} of {self.total:,} shown; {how}."


def require_at_least(minimum: int, kind: Any = int | None, **values: Any) -> None:
    """Check that each value is a whole number of at least `minimum`, or None unless `kind` is int.

    Raises:
        RespondToModel: it is not; the sentence names it.
    """
    require(kind, **values)
    for name, value in values.items():
        if value is not None and value < minimum:
            raise RespondToModel(f"{name} is {value}, but has to be at least {minimum}.")


def require(kind: Any, **values: object) -> None:
    """Check that each value is of a type, which a call by hand need not heed.

    Raises:
        RespondToModel: it is not; the sentence names it.
    """
    for name, value in values.items():
        check(name, value, kind, RespondToModel)


@dataclass(frozen=True, slots=True)
class OutputGuard:
    """Caps lists by the call's arguments `detail_level`, `offset` and `limit`.

    Attributes:
        detail_level: "full" for pages of whole results; anything else explores.
        offset: number of results to skip.
        limit: most results of a page, 50 by default; while exploring it lowers the two below.
        max_results: most items while exploring.
        max_files: most files while exploring.

    Raises:
        RespondToModel: one of them does not fit; the sentence names it.
    """

    detail_level: str | None = None
    offset: int = 0
    limit: int | None = None
    max_results: int = MAX_RESULTS
    max_files: int = MAX_FILES

    def __post_init__(self) -> None:
        """Check what a call by hand, too, may give."""
        require_at_least(0, int, offset=self.offset)
        require_at_least(
            1, limit=self.limit, max_results=self.max_results, max_files=self.max_files
        )

    @property
    def focused(self) -> bool:
        """Whether the full view was requested."""
        return self.detail_level == "full"

    def should_include_body(self) -> bool:
        """Return whether each result is shown with its body."""
        return self.focused

    @property
    def most_items(self) -> int:
        """The most items of a result."""
        return self._most(self.max_results)

    @property
    def most_files(self) -> int:
        """The most files of a result."""
        return self._most(self.max_files)

    def cap_items(self, items: Sequence[T], hint: str = "") -> tuple[list[T], Overflow | None]:
        """Return the items of this page, and an `Overflow` where there are more.

        Args:
            items: all of them, in order.
            hint: how to see others, such as "narrow the pattern".

        Returns:
            The items of the page; None in place of the overflow where nothing is left out.
        """
        return self._cap(items, self.most_items, hint)

    def cap_files(self, files: Sequence[T], hint: str = "") -> tuple[list[T], Overflow | None]:
        """Do the same as `cap_items` for a list of files."""
        return self._cap(files, self.most_files, hint)

    def overflow(self, shown: int, total: int, hint: str = "") -> Overflow | None:
        """Return the `Overflow` of a page; None where nothing is left out.

        For results that are counted but never held all at once: skip `offset`, take `most_items`.

        Args:
            shown: the number of results on the page.
            total: the number of all results.
            hint: how to see others.
        """
        end = self.offset + shown
        if shown == total or (end >= total and shown):
            return None
        if not shown:
            hint = f"there is none from offset={self.offset} on"
        goes_on = self.focused and shown > 0
        return Overflow(shown, total, hint, end if goes_on else None)

    def _most(self, cap: int) -> int:
        if self.focused:
            return self.limit or PAGE
        return min(self.limit or cap, cap)

    def _cap(self, items: Sequence[T], most: int, hint: str) -> tuple[list[T], Overflow | None]:
        page = list(items[self.offset : self.offset + most])
        return page, self.overflow(len(page), len(items), hint)
