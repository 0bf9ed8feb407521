"""``list_dir`` and ``glob``: what a folder holds, and which files below it fit a pattern."""

from collections.abc import Iterator
from typing import Literal

from agent_magics.backends.folders import Entry, Listing, Sort, list_folder
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.output_guard import OutputGuard
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.file_access import (
    FOR_NOTES,
    MOST_READ_BY_HAND,
    assess_read,
    cancel_check,
    count_fitting,
    ignored_note,
    number_of,
    place,
    refuse_unasked,
    require_at_least,
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
    """List a folder: folders first, then files with their sizes, each by name.

    Links are shown with their target and not followed. .git is left out, and so are names that
    start with a dot and what .gitignore names; the answer says how many. A folder that is left out
    is listed when it is given as path.

    Args:
        path: the folder; relative to the workspace, absolute, or starting with ~.
        recursive: list what is in its folders too.
        max_depth: levels to go down; 1 is the folder's own entries. Giving it means recursive.
        pattern: list only names that match this glob, such as *.py, or src/**/*.{js,ts}.
        sort: name; size for the largest first; mtime for the latest change first.
        include_hidden: list names that start with a dot too.
        detail_level: "full" for times of change too, page by page; leave it out to explore.
        offset: entries to leave out at the start, to go on where a page ended.
        limit: most entries to list; 200, or 50 in the full view.

    Returns:
        Called by hand: a list of `Entry` that prints well.

    Raises:
        RespondToModel: there is no such folder, or it may not be read.
    """
    guard = OutputGuard(detail_level, offset, limit)
    require_at_least(1, max_depth=max_depth)
    resolved, shown = place(path, ctx)
    reason = refuse_unasked(resolved, shown, ctx)
    listing = list_folder(
        resolved,
        shown,
        depth=None if recursive and max_depth is None else max_depth or 1,
        pattern=pattern,
        sort=sort,
        include_hidden=include_hidden,
        offset=guard.offset,
        limit=guard.most_items,
        guarded=ctx is not None and not reason,
        is_cancelled=cancel_check(ctx),
    )
    return Entries(listing, shown, guard, with_times=guard.focused or sort == "mtime")


@tool(parallel=True, mutating=False, assess=assess_read)
def glob(
    pattern: str, path: str = ".", limit: int | None = None, *, ctx: ToolContext | None = None
) -> "FoundFiles":
    """Find files below a folder by name.

    Names that start with a dot, .git and what .gitignore names are left out, and links are not
    followed. A folder that is left out is searched when it is given as path.

    Args:
        pattern: *.py is held against names at any depth, src/**/*.{js,ts} against paths.
        path: the folder; relative to the workspace, absolute, or starting with ~.
        limit: most files to list, at most 200; all are counted.

    Returns:
        Called by hand: a list of `Entry` that prints well.

    Raises:
        RespondToModel: there is no such folder, or it may not be read.
    """
    guard = OutputGuard(limit=limit)
    if not pattern:
        raise RespondToModel("The pattern is empty; give one such as *.py or src/**/*.ts.")
    resolved, shown = place(path, ctx)
    reason = refuse_unasked(resolved, shown, ctx)
    listing = list_folder(
        resolved,
        shown,
        depth=None,
        pattern=pattern,
        kinds=("file", "link"),
        limit=guard.most_files,
        guarded=ctx is not None and not reason,
        is_cancelled=cancel_check(ctx),
    )
    return FoundFiles(listing, shown, guard, pattern)


class Entries(list[Entry]):
    """What a folder holds, or one page of it.

    Attributes:
        listing: the page with the true counts.
        shown: the folder's name.
        guard: how much of it was asked for.
    """

    def __init__(
        self, listing: Listing, shown: str, guard: OutputGuard, *, with_times: bool = False
    ) -> None:
        super().__init__(listing.entries)
        self.listing, self.shown, self.guard = listing, shown, guard
        self._with_times = with_times

    def __repr__(self) -> str:
        return self._text(MOST_READ_BY_HAND)

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many entries as fit, the true counts, and how to go on."""
        return ToolOutput(
            self._text(budget), details={"path": self.shown, "total": self.listing.total}
        )

    def _text(self, budget: int) -> str:
        lines = [self._line(entry) for entry in self.listing.entries]
        count = count_fitting(lines, budget - FOR_NOTES)
        return "\n".join((*lines[:count], *self._notes(count)))

    def _line(self, entry: Entry) -> str:
        if not self._with_times or entry.modified is None:
            return str(entry)
        return f"{entry}  {entry.modified:%Y-%m-%d %H:%M}"

    def _notes(self, count: int) -> Iterator[str]:
        listing = self.listing
        yield self._counted(count)
        if listing.hidden:
            yield f"{number_of(listing.hidden, 'hidden entry', 'hidden entries')} left out."
        if listing.ignored:
            yield ignored_note(listing.ignored, listing.ignored_names)
        if listing.protected:
            yield f"{number_of(listing.protected, 'protected folder')} not entered."
        if listing.unreadable:
            yield f"{number_of(listing.unreadable, 'folder')} could not be read."

    def _total(self, one: str, many: str) -> str:
        over = "" if self.listing.complete else "over "
        return f"{over}{number_of(self.listing.total, one, many)}"

    def _counted(self, count: int) -> str:
        first, folder = self.guard.offset, f'in "{self.shown}"'
        if not self.listing.total:
            return f"No entries {folder}."
        total = self._total("entry", "entries")
        if not count:
            return f"{total} {folder}; offset={first} is behind the last."
        rest = self.guard.overflow(count, self.listing.total, f"go on with offset={first + count}")
        how_on = "" if rest is None else f"; {rest.hint}"
        return f"{first + 1}-{first + count} of {total} {folder}{how_on}."


class FoundFiles(Entries):
    """The files whose names fit a pattern, the first ones if there are many.

    Attributes:
        pattern: what they were looked for by.
    """

    def __init__(self, listing: Listing, shown: str, guard: OutputGuard, pattern: str) -> None:
        super().__init__(listing, shown, guard)
        self.pattern = pattern

    def _counted(self, count: int) -> str:
        wanted = f'below "{self.shown}" with names like {self.pattern}'
        if not self.listing.total:
            return f"No files {wanted}."
        total = self._total("file", "files")
        rest = self.guard.overflow(count, self.listing.total, "narrow the pattern for others")
        if rest is None:
            return f"{total} {wanted}."
        return f"The first {rest.shown:,} of {total} {wanted}; {rest.hint}."
