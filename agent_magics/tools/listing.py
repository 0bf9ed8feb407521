"""``list_dir`` and ``glob``: what a folder holds, and which files below it fit a pattern."""

from collections.abc import Iterator

from agent_magics.backends.folders import Entry, Listing, list_folder
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.file_access import (
    FOR_NOTES,
    MOST_READ_BY_HAND,
    assess_read,
    cancel_check,
    count_fitting,
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
    include_hidden: bool = False,
    offset: int = 0,
    limit: int = 200,
    *,
    ctx: ToolContext | None = None,
) -> "Entries":
    """List a folder: folders first, then files with their sizes, each by name.

    Links are shown with their target and not followed. .git is left out, and so are names that
    start with a dot; the answer says how many.

    Args:
        path: the folder; relative to the workspace, absolute, or starting with ~.
        recursive: list what is in its folders too.
        max_depth: levels to go down; 1 is the folder's own entries. Giving it means recursive.
        pattern: list only names that match this glob, such as *.py, or src/**/*.{js,ts}.
        include_hidden: list names that start with a dot too.
        offset: entries to leave out at the start, to go on where an answer ended.
        limit: most entries to list.

    Returns:
        Called by hand: a list of `Entry` that prints well.

    Raises:
        RespondToModel: there is no such folder, or it may not be read.
    """
    require_at_least(0, offset=offset)
    require_at_least(1, limit=limit, max_depth=max_depth)
    resolved, shown = place(path, ctx)
    reason = refuse_unasked(resolved, shown, ctx)
    listing = list_folder(
        resolved,
        shown,
        depth=None if recursive and max_depth is None else max_depth or 1,
        pattern=pattern,
        include_hidden=include_hidden,
        offset=offset,
        limit=limit,
        guarded=ctx is not None and not reason,
        is_cancelled=cancel_check(ctx),
    )
    return Entries(listing, shown, offset)


@tool(parallel=True, mutating=False, assess=assess_read)
def glob(
    pattern: str, path: str = ".", limit: int = 200, *, ctx: ToolContext | None = None
) -> "FoundFiles":
    """Find files below a folder by name.

    Names that start with a dot and .git are left out, and links are not followed.

    Args:
        pattern: *.py is held against names at any depth, src/**/*.{js,ts} against paths.
        path: the folder; relative to the workspace, absolute, or starting with ~.
        limit: most files to list; all are counted.

    Returns:
        Called by hand: a list of `Entry` that prints well.

    Raises:
        RespondToModel: there is no such folder, or it may not be read.
    """
    require_at_least(1, limit=limit)
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
        limit=limit,
        guarded=ctx is not None and not reason,
        is_cancelled=cancel_check(ctx),
    )
    return FoundFiles(listing, shown, pattern)


class Entries(list[Entry]):
    """What a folder holds, or one page of it.

    Attributes:
        listing: the page with the true counts.
        shown: the folder's name.
        offset: entries before this page.
    """

    def __init__(self, listing: Listing, shown: str, offset: int = 0) -> None:
        super().__init__(listing.entries)
        self.listing, self.shown, self.offset = listing, shown, offset

    def __repr__(self) -> str:
        return self._text(MOST_READ_BY_HAND)

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many entries as fit, the true counts, and how to go on."""
        return ToolOutput(
            self._text(budget), details={"path": self.shown, "total": self.listing.total}
        )

    def _text(self, budget: int) -> str:
        lines = [str(entry) for entry in self.listing.entries]
        count = count_fitting(lines, budget - FOR_NOTES)
        return "\n".join((*lines[:count], *self._notes(count)))

    def _notes(self, count: int) -> Iterator[str]:
        listing = self.listing
        yield self._counted(count)
        if listing.hidden:
            yield f"{number_of(listing.hidden, 'hidden entry', 'hidden entries')} left out."
        if listing.protected:
            yield f"{number_of(listing.protected, 'protected folder')} not entered."
        if listing.unreadable:
            yield f"{number_of(listing.unreadable, 'folder')} could not be read."

    def _total(self, one: str, many: str) -> str:
        over = "" if self.listing.complete else "over "
        return f"{over}{number_of(self.listing.total, one, many)}"

    def _counted(self, count: int) -> str:
        end, folder = self.offset + count, f'in "{self.shown}"'
        if not self.listing.total:
            return f"No entries {folder}."
        total = self._total("entry", "entries")
        if not count:
            return f"{total} {folder}; offset={self.offset} is behind the last."
        if end < self.listing.total:
            return f"{self.offset + 1}-{end} of {total} {folder}; go on with offset={end}."
        return f"{self.offset + 1}-{end} of {total} {folder}."


class FoundFiles(Entries):
    """The files whose names fit a pattern, the first ones if there are many.

    Attributes:
        pattern: what they were looked for by.
    """

    def __init__(self, listing: Listing, shown: str, pattern: str) -> None:
        super().__init__(listing, shown)
        self.pattern = pattern

    def _counted(self, count: int) -> str:
        wanted = f'below "{self.shown}" with names like {self.pattern}'
        if not self.listing.total:
            return f"No files {wanted}."
        total = self._total("file", "files")
        if count < self.listing.total:
            return f"The first {count:,} of {total} {wanted}; narrow the pattern for others."
        return f"{total} {wanted}."
