"""Looking at files: ``read_file``, ``list_dir`` and ``grep_files``.

Law: a protected file is shown only if the question about this very file was asked for this very
call. What a path leads to may change between the question and the reading, even by an earlier call
of the same answer, so the opened file is judged again.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_magics.backends import files, search
from agent_magics.backends.files import Window
from agent_magics.backends.folders import Entry, Listing, list_folder
from agent_magics.backends.paths import is_denied_read, literal_path, resolve_path, shown_path
from agent_magics.backends.search import Found, Match
from agent_magics.backends.secret_places import is_second_name
from agent_magics.dispatch.approval import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.handles import is_handle
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput

MOST_LINES = 250  # of one call by a model
_MOST_CONTEXT = 20
_MOST_READ_BY_HAND = 10_000  # characters of a result's repr
_FOR_NOTES = 400  # characters of a budget kept for what is told about the result
_ASKED = "protected reads asked about"


def _assess_read(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Say which path a call would read, and whether it is protected."""
    written = arguments.get("path", ".")
    # Not `ctx.validate_path`: before approval that refuses what the person is to be asked about.
    path = resolve_path(written, ctx.cwd)
    reason = is_denied_read(literal_path(written, ctx.cwd)) or is_denied_read(path)
    kind = ActionKind.READ_DENIED if reason else ActionKind.READ
    if reason:
        ctx.extra.setdefault(_ASKED, {})[ctx.call_id] = path
    fingerprint = fingerprint_of(ctx.name, dict(arguments), str(path))
    return [Action(kind, shown_path(path, ctx.cwd), reason, fingerprint)]


def _place(path: str, ctx: ToolContext | None) -> tuple[Path, str]:
    """Return where `path` leads, and how to name it."""
    if ctx is None:
        cwd = Path.cwd()
        resolved = resolve_path(path, cwd)
    else:
        cwd = ctx.cwd
        resolved = ctx.validate_path(path, "read")
        if is_handle(path):
            return resolved, path
    return resolved, shown_path(resolved, cwd)


def _refuse_unasked(
    path: Path, shown: str, ctx: ToolContext | None, opened: os.stat_result | None = None
) -> str:
    """Return why `path` is protected, or ""; raise when it is and nobody was asked about it."""
    reason = "" if ctx is None else is_denied_read(path)
    if ctx is not None and not reason and opened is not None and is_second_name(opened):
        reason = "a second name of a protected file"
    if reason and ctx.extra.get(_ASKED, {}).get(ctx.call_id) != path:
        raise RespondToModel(
            f"{shown} is protected now ({reason}) and was not when this call was checked. "
            "Call again, so that the person can be asked."
        )
    return reason


def _cancel_check(ctx: ToolContext | None) -> Callable[[], bool]:
    return (lambda: False) if ctx is None else ctx.cancelled.is_set


def _at_least(minimum: int, **values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < minimum:
            raise RespondToModel(f"{name} is {value}, but has to be at least {minimum}.")


def _count_fitting(lines: Sequence[str], budget: int) -> int:
    """Return how many of `lines`, from the first, fit in `budget` characters; at least one."""
    used = 0
    for count, line in enumerate(lines):
        used += len(line) + 1
        if used > budget and count:
            return count
    return len(lines)


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


# -- read_file -----------------------------------------------------------------------------------


@tool(parallel=True, mutating=False, assess=_assess_read)
def read_file(
    path: str,
    start_line: int | None = None,
    end_line: int | None = None,
    max_lines: int | None = None,
    offset_bytes: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> "str | FilePage":
    """Read a text file, or a window of it; lines come numbered, at most 250 a call.

    Lines over 2,000 characters are cut, and the answer says so. UTF-8, and UTF-16 with a byte order
    mark. In a huge file `offset_bytes` reaches any place at once.

    Args:
        path: the file; relative to the workspace, absolute, or starting with ~.
        start_line: first line to read, counted from 1.
        end_line: last line to read.
        max_lines: most lines to read; 250 if not given.
        offset_bytes: byte to start at, instead of start_line and end_line.

    Returns:
        Called by hand: the text exactly as it stands in the file, whole if no window is given.

    Raises:
        RespondToModel: there is no such file, it is not text, or the window is not in it.
    """
    first, count = _window_asked_for(start_line, end_line, max_lines, offset_bytes)
    resolved, shown = _place(path, ctx)
    descriptor = files.open_regular(resolved, shown)
    try:
        if ctx is None:
            text, lost = files.read_text(descriptor, shown, first, count, offset_bytes)
            if lost:
                warnings.warn(_lost_note(lost, shown), UnicodeWarning, stacklevel=2)
            return text
        where = files.opened_path(descriptor) or resolved
        _refuse_unasked(where, shown, ctx, os.fstat(descriptor))
        count = min(count or MOST_LINES, MOST_LINES)
        cancelled = _cancel_check(ctx)
        window = files.read_window(descriptor, shown, first, count, offset_bytes, cancelled)
        return FilePage(window, shown, from_byte=offset_bytes is not None)
    finally:
        os.close(descriptor)


def _window_asked_for(
    start_line: int | None, end_line: int | None, max_lines: int | None, offset_bytes: int | None
) -> tuple[int, int | None]:
    """Return (first line, most lines), or say what is wrong with the numbers."""
    _at_least(1, start_line=start_line, end_line=end_line, max_lines=max_lines)
    _at_least(0, offset_bytes=offset_bytes)
    if offset_bytes is not None and (start_line is not None or end_line is not None):
        raise RespondToModel("Give either offset_bytes or start_line and end_line, not both.")
    first = start_line or 1
    if end_line is not None and end_line < first:
        raise RespondToModel(f"end_line={end_line} is before start_line={first}.")
    limits = [limit for limit in (max_lines, end_line and end_line - first + 1) if limit]
    return first, min(limits, default=None)


def _lost_note(lost: int, shown: str) -> str:
    return f"{_number(lost, 'byte')} of {shown} could not be decoded and read as \ufffd."


@dataclass(frozen=True, slots=True)
class FilePage:
    """A window of a file as the model reads it."""

    window: Window
    shown: str
    from_byte: bool = False

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many numbered lines as fit, and how to go on."""
        lines = list(self._numbered())
        count = _count_fitting(lines, budget - _FOR_NOTES)
        if count == 1:
            lines[0] = _cut(lines[0], max(budget - _FOR_NOTES, 100))
        text = "\n".join((*lines[:count], *self._notes(count)))
        last = self.window.first + count - 1
        details = {"path": self.shown, "first": self.window.first, "last": last}
        return ToolOutput(text, details=details | {"total": self.window.total})

    def _numbered(self) -> Iterator[str]:
        for number, line in enumerate(self.window.lines, start=self.window.first):
            mark = ""
            if line.length > len(line.text):
                more = "" if line.ended else "more than "
                mark = f"… [cut: {len(line.text):,} of {more}{line.length:,} characters]"
            yield f"{number:4}| {line.text}{mark}"

    def _notes(self, count: int) -> Iterator[str]:
        window = self.window
        if not window.lines:
            yield f"{self.shown} is empty ({_number(window.size, 'byte')})."
            return
        yield f"{self._which(count)}{self._how_on(count)}."
        if window.lost:
            yield _lost_note(window.lost, self.shown)
        if window.encoding.name != "utf-8":
            yield f"The file is {window.encoding.name.upper()}."
        elif window.encoding.mark:
            yield "The file starts with a byte order mark."
        if any(line.ends_crlf for line in window.lines):
            yield "Its lines end with CRLF."

    def _which(self, count: int) -> str:
        window = self.window
        which = f"lines {window.first}-{window.first + count - 1}"
        if window.total is not None:
            return f"{which} of {window.total:,}"
        counted = f" counted from byte {window.offset:,}" if self.from_byte else ""
        return f"{which}{counted} of a file of {window.size:,} bytes"

    def _how_on(self, count: int) -> str:
        window = self.window
        if not window.more and count == len(window.lines):
            return "" if window.total is not None else "; its end"
        by_byte = window.offset + sum(line.size for line in window.lines[:count])
        by_line = window.first + count
        if self.from_byte or not window.lines[count - 1].ended:
            return f"; go on with offset_bytes={by_byte}"
        quickly = "" if window.total is not None else f" or, quicker, offset_bytes={by_byte}"
        return f"; go on with start_line={by_line}{quickly}"


def _cut(line: str, length: int) -> str:
    return line if len(line) <= length else f"{line[:length]}… [cut: {length:,} characters shown]"


# -- list_dir ------------------------------------------------------------------------------------


@tool(parallel=True, mutating=False, assess=_assess_read)
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
    _at_least(0, offset=offset)
    _at_least(1, limit=limit, max_depth=max_depth)
    resolved, shown = _place(path, ctx)
    reason = _refuse_unasked(resolved, shown, ctx)
    listing = list_folder(
        resolved,
        shown,
        depth=None if recursive and max_depth is None else max_depth or 1,
        pattern=pattern,
        include_hidden=include_hidden,
        offset=offset,
        limit=limit,
        guarded=ctx is not None and not reason,
        is_cancelled=_cancel_check(ctx),
    )
    return Entries(listing, shown, offset)


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
        return self._text(_MOST_READ_BY_HAND)

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many entries as fit, the true counts, and how to go on."""
        return ToolOutput(
            self._text(budget), details={"path": self.shown, "total": self.listing.total}
        )

    def _text(self, budget: int) -> str:
        lines = [str(entry) for entry in self.listing.entries]
        count = _count_fitting(lines, budget - _FOR_NOTES)
        return "\n".join((*lines[:count], *self._notes(count)))

    def _notes(self, count: int) -> Iterator[str]:
        listing, end = self.listing, self.offset + count
        folder = f'in "{self.shown}"'
        total = f"{'' if listing.complete else 'over '}{_number(listing.total, 'entry', 'entries')}"
        if not listing.total:
            yield f"No entries {folder}."
        elif not count:
            yield f"{total} {folder}; offset={self.offset} is behind the last."
        elif end < listing.total:
            yield f"{self.offset + 1}-{end} of {total} {folder}; go on with offset={end}."
        else:
            yield f"{self.offset + 1}-{end} of {total} {folder}."
        if listing.hidden:
            yield f"{_number(listing.hidden, 'hidden entry', 'hidden entries')} left out."
        if listing.protected:
            yield f"{_number(listing.protected, 'protected folder')} not entered."
        if listing.unreadable:
            yield f"{_number(listing.unreadable, 'folder')} could not be read."


# -- grep_files ----------------------------------------------------------------------------------


@tool(parallel=True, mutating=False, assess=_assess_read)
def grep_files(
    pattern: str,
    path: str = ".",
    file_pattern: str | None = None,
    case_sensitive: bool = True,
    max_results: int = 200,
    context: int = 0,
    *,
    ctx: ToolContext | None = None,
) -> "Matches":
    """Find the lines that match a regular expression, in a file or in all files below a folder.

    Hidden files, .git and binary files are not searched and links are not followed; ignore files
    such as .gitignore are not looked at, so ignored files are searched too.

    Args:
        pattern: the regular expression, held against one line at a time.
        path: the file or folder; relative to the workspace, absolute, or starting with ~.
        file_pattern: search only files that match this glob, such as *.py, or src/**/*.{js,ts}.
        case_sensitive: false to treat capital and small letters as equal.
        max_results: most matching lines to return; all are counted.
        context: lines to show before and after each, up to 20.

    Returns:
        Called by hand: a list of `Match` that prints well.

    Raises:
        RespondToModel: the pattern is no regular expression, or there is no such file or folder.
    """
    _at_least(1, max_results=max_results)
    _at_least(0, context=context)
    resolved, shown = _place(path, ctx)
    reason = _refuse_unasked(resolved, shown, ctx)
    if not resolved.is_dir():
        os.close(files.open_regular(resolved, shown))
    found = search.search(
        resolved,
        pattern,
        cwd=Path.cwd() if ctx is None else ctx.cwd,
        file_pattern=file_pattern,
        case_sensitive=case_sensitive,
        max_results=max_results,
        context=min(context, _MOST_CONTEXT),
        guarded=ctx is not None and not reason,
        distrusted=() if ctx is None else ctx.config.roots,
        is_cancelled=_cancel_check(ctx),
    )
    return Matches(found, pattern, shown)


class Matches(list[Match]):
    """The lines a search found, the first ones if there are many.

    Attributes:
        found: the matches with the true counts.
        pattern: what was looked for.
        shown: the name of the file or folder that was searched.
    """

    def __init__(self, found: Found, pattern: str, shown: str) -> None:
        super().__init__(found.matches)
        self.found, self.pattern, self.shown = found, pattern, shown

    def __repr__(self) -> str:
        return self._text(_MOST_READ_BY_HAND)

    def to_output(self, budget: int) -> ToolOutput:
        """Return the counts and as many matches as fit."""
        details = {"total": self.found.total, "files": self.found.files}
        return ToolOutput(self._text(budget), details=details)

    def _text(self, budget: int) -> str:
        lines = list(self._lines())
        count = _count_fitting([text for text, _ in lines], budget - _FOR_NOTES)
        shown = sum(is_match for _, is_match in lines[:count])
        return "\n".join((*self._notes(shown), *(text for text, _ in lines[:count])))

    def _notes(self, shown: int) -> Iterator[str]:
        found = self.found
        searched = f"{_number(found.searched, 'file')} searched"
        if found.total:
            total = _number(found.total, "matching line")
            first = f"; the first {shown:,} follow, narrow the search for others"
            many = first if shown < found.total else ""
            yield f"{total} in {_number(found.files, 'file')} ({searched}){many}."
        else:
            yield f"No line matches {self.pattern!r} in {self.shown} ({searched})."
        if not found.complete:
            yield f"Stopped after {search.SECONDS:.0f} s: there may be more. Narrow the search."
        if found.protected:
            yield f"{_number(found.protected, 'protected place')} left out (files and folders)."
        if found.unreadable:
            yield f"{_number(found.unreadable, 'file')} could not be read."

    def _lines(self) -> Iterator[tuple[str, bool]]:
        """Yield (text, whether it matched): ``path:line: text``, and ``path-line- text`` around."""
        for path, matches in self._by_file().items():
            hits = {match.line: match.text for match in matches}
            around = {n: text for match in matches for n, text in (*match.before, *match.after)}
            previous = None
            for number, text in sorted((around | hits).items()):
                if around and previous is not None and number > previous + 1:
                    yield "--", False
                mark = ":" if number in hits else "-"
                yield f"{path}{mark}{number}{mark} {text}", number in hits
                previous = number

    def _by_file(self) -> dict[str, list[Match]]:
        grouped: dict[str, list[Match]] = {}
        for match in self.found.matches:
            grouped.setdefault(match.path, []).append(match)
        return grouped
