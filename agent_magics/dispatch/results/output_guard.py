"""OutputGuard: the one way in which list-like results are capped, and told to be.

A tool shows much of little or little of much. Without a `detail_level` a model explores: it gets
the first results, without their bodies. With "full" it looks closely, page by page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_magics.protocol.errors import RespondToModel

T = TypeVar("T")

MAX_RESULTS = 200
MAX_FILES = 200
PAGE = 50  # results of one page of the full view


@dataclass(frozen=True, slots=True)
class Overflow:
    """What a capped result says of the rest.

    Attributes:
        shown: how many results there are on this page.
        total: how many there are in all.
        hint: how to see others, in words.
        next_offset: where the next page begins; None where there is none, and while exploring.
    """

    shown: int
    total: int
    hint: str
    next_offset: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as the ``overflow`` of a JSON result."""
        found: dict[str, Any] = {"shown": self.shown, "total": self.total, "hint": self.hint}
        return found if self.next_offset is None else {**found, "next_offset": self.next_offset}

    def __str__(self) -> str:
        how = self.hint if self.next_offset is None else f"go on with offset={self.next_offset}"
        return f"{self.shown:,} of {self.total:,} shown; {how}."


@dataclass(frozen=True, slots=True)
class OutputGuard:
    """Caps lists as a call's arguments of the same names ask for it.

    Attributes:
        detail_level: "full" for pages of whole results; anything else explores.
        offset: results to leave out at the start.
        limit: results of a page; 50 where it is not given. While exploring it lowers the two below.
        max_results: most items while exploring.
        max_files: most files while exploring.

    Raises:
        RespondToModel: a number is too small; the sentence names it.
    """

    detail_level: str | None = None
    offset: int = 0
    limit: int | None = None
    max_results: int = MAX_RESULTS
    max_files: int = MAX_FILES

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for name, value, least in (
            ("offset", self.offset, 0),
            ("limit", self.limit, 1),
            ("max_results", self.max_results, 1),
            ("max_files", self.max_files, 1),
        ):
            if value is not None and value < least:
                raise RespondToModel(f"{name} is {value}, but has to be at least {least}.")

    @classmethod
    def from_input(cls, arguments: Mapping[str, Any]) -> "OutputGuard":
        """Return the guard for a call's arguments; those it does not know are left alone."""
        return cls(
            arguments.get("detail_level"), arguments.get("offset") or 0, arguments.get("limit")
        )

    @property
    def focused(self) -> bool:
        """Whether the full view was asked for."""
        return self.detail_level == "full"

    def should_include_body(self) -> bool:
        """Tell whether each result comes with all that is known of it."""
        return self.focused

    @property
    def most_items(self) -> int:
        """How many items a result holds at most."""
        return self._most(self.max_results)

    @property
    def most_files(self) -> int:
        """How many files a result holds at most."""
        return self._most(self.max_files)

    def cap_items(self, items: Sequence[T], hint: str = "") -> tuple[list[T], Overflow | None]:
        """Return the items of this page, and what to say of the rest; None where there is none.

        Args:
            items: all of them, in order.
            hint: how to see others, such as "narrow the pattern".
        """
        return self._cap(items, self.most_items, hint)

    def cap_files(self, files: Sequence[T], hint: str = "") -> tuple[list[T], Overflow | None]:
        """Do the same for a list of files."""
        return self._cap(files, self.most_files, hint)

    def overflow(self, shown: int, total: int, hint: str = "") -> Overflow | None:
        """Return what to say where `shown` of `total` results fit; None where nothing is left out.

        For results that are counted but never held all at once: take `offset` and `most_items` of
        them, and ask this.
        """
        end = self.offset + shown
        if shown == total or (end >= total and shown):
            return None
        goes_on = self.focused and shown > 0
        return Overflow(shown, total, hint, end if goes_on else None)

    def _most(self, cap: int) -> int:
        if self.focused:
            return self.limit or PAGE
        return min(self.limit or cap, cap)

    def _cap(self, items: Sequence[T], most: int, hint: str) -> tuple[list[T], Overflow | None]:
        page = list(items[self.offset : self.offset + most])
        return page, self.overflow(len(page), len(items), hint)
