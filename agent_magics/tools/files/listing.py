"""``list_dir`` and ``glob``: lists the entries of a folder, or the files that match a pattern."""

from collections.abc import Iterator
from typing import Literal

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import OutputGuard, require, require_at_least
from agent_magics.dispatch.tool import tool
from agent_magics.files.folders import SECONDS, FolderEntry, Listing, Sort, list_folder
from agent_magics.protocol.items import Json
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import (
    FOR_NOTES,
    Readable,
    assess_read,
    begin_walk,
    count_fitting,
    ignored_note,
    stopped_note,
)


@tool(parallel=True, mutating=False, assess=assess_read)
def list_dir(
    path: str = ".",
    recursive: bool = False,
    max_depth: int | None = None,
    pattern: str | None = None,
    sort: Sort = "name",
    include_hidden: bool = False,
    detail_level: Literal["full"] | None = None,
    offset: int = 0,
    limit: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> "Entries":
    """List a folder: folders first, then files with sizes.

    Links are not followed. Dot and gitignored files are left out unless given as path.

    Args:
        max_depth: 1 for its own entries; means recursive.
        pattern: a glob, such as *.py or src/**/*.{js,ts}.
        sort: the largest or the latest first.
        detail_level: "full" adds times of change, in pages.

    Returns:
        Called by hand: a list of `FolderEntry` that prints well.

    Raises:
        RespondToModel: there is no such folder, or it may not be read.
    """
    guard = OutputGuard(detail_level, offset, limit)
    require_at_least(1, max_depth=max_depth)
    require(Sort, sort=sort)
    require(str | None, pattern=pattern)
    start, shown, rights = begin_walk(path, ctx)
    goes_down = recursive or "/" in (pattern or "").removeprefix("./").rstrip("/")
    listing = list_folder(
        start,
        shown,
        depth=None if goes_down and max_depth is None else max_depth or 1,
        pattern=pattern,
        sort=sort,
        include_hidden=include_hidden,
        offset=guard.offset,
        limit=guard.most_items,
        rights=rights,
    )
    with_times = guard.focused or sort == "mtime"
    return Entries(listing, shown, guard, pattern, with_times=with_times)


@tool(parallel=True, mutating=False, assess=assess_read)
def glob(
    pattern: str, path: str = ".", limit: int | None = None, *, ctx: ToolContext | None = None
) -> "FoundFiles":
    """Find files by name.

    Links are not followed. Dot and gitignored files are left out unless given as path.

    Args:
        pattern: *.py matches names at any depth, src/**/*.{js,ts} paths.

    Returns:
        Called by hand: a list of `FolderEntry` that prints well.

    Raises:
        RespondToModel: there is no such folder, or it may not be read.
    """
    guard = OutputGuard(limit=limit)
    start, shown, rights = begin_walk(path, ctx)
    listing = list_folder(
        start,
        shown,
        depth=None,
        pattern=pattern,
        kinds=("file", "link"),
        limit=guard.most_files,
        rights=rights,
    )
    return FoundFiles(listing, shown, guard, pattern)


class Entries(Readable, list[FolderEntry]):
    """The entries of a folder, or one page of them.

    Attributes:
        listing: the page with the true counts.
        shown: the folder's name.
        guard: the requested page.
        pattern: the glob that names fit; None for all.
    """

    def __init__(
        self,
        listing: Listing,
        shown: str,
        guard: OutputGuard,
        pattern: str | None = None,
        *,
        with_times: bool = False,
    ) -> None:
        super().__init__(listing.entries)
        self.listing, self.shown, self.guard, self.pattern = listing, shown, guard, pattern
        self._with_times = with_times

    @property
    def _details(self) -> dict[str, Json]:
        return {"path": self.shown, "total": self.listing.total}

    def _text(self, budget: int) -> str:
        lines = [self._line(entry) for entry in self.listing.entries]
        count = count_fitting(lines, budget - FOR_NOTES)
        return "\n".join((*lines[:count], *self._notes(count)))

    def _line(self, entry: FolderEntry) -> str:
        if not self._with_times or entry.modified is None:
            return str(entry)
        return f"{entry}  {entry.modified:%Y-%m-%d %H:%M}"

    def _notes(self, count: int) -> Iterator[str]:
        listing = self.listing
        yield self._counted(count)
        if listing.unseen:
            yield stopped_note(SECONDS, listing.unseen)
        if listing.hidden:
            yield f"{number_of(listing.hidden, 'hidden entry', 'hidden entries')} left out."
        if listing.ignored:
            yield ignored_note(listing.ignored, listing.ignored_names)
        if listing.protected:
            yield f"{number_of(listing.protected, 'protected folder')} not entered."
        if listing.withheld:
            entries = number_of(listing.withheld, "entry", "entries")
            yield f"{entries} left out: a rule forbids reading them."
        if listing.unreadable:
            yield f"{number_of(listing.unreadable, 'folder')} could not be read."

    @property
    def _like(self) -> str:
        return "" if self.pattern is None else f" with names like {self.pattern}"

    def _total(self, one: str, many: str) -> str:
        over = "" if self.listing.complete else "over "
        return f"{over}{number_of(self.listing.total, one, many)}"

    def _counted(self, count: int) -> str:
        first, folder = self.guard.offset, f'in "{self.shown}"{self._like}'
        if not self.listing.total:
            return f"No entries {folder}."
        total = self._total("entry", "entries")
        if not count:
            return f"{total} {folder}; offset={first} is behind the last."
        rest = self.guard.overflow(count, self.listing.total, f"go on with offset={first + count}")
        how_on = "" if rest is None else f"; {rest.hint}"
        return f"{first + 1}-{first + count} of {total} {folder}{how_on}."


class FoundFiles(Entries):
    """The files whose names match a pattern, the first ones if there are many."""

    def _counted(self, count: int) -> str:
        wanted = f'below "{self.shown}"{self._like}'
        if not self.listing.total:
            return f"No files {wanted}."
        total = self._total("file", "files")
        rest = self.guard.overflow(count, self.listing.total, "narrow the pattern for others")
        if rest is None:
            return f"{total} {wanted}."
        return f"The first {rest.shown:,} of {total} {wanted}; {rest.hint}."
