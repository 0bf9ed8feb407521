"""``read_file``: a text file, or a window of it."""

import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import require_at_least
from agent_magics.dispatch.tool import tool
from agent_magics.files.text import windows as files
from agent_magics.files.text.encoding import Encoding
from agent_magics.files.text.lines import LINE_CHARACTERS
from agent_magics.files.text.windows import TextWindow, Window
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import Json
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import (
    FOR_NOTES,
    assess_read,
    count_fitting,
    opened,
)
from agent_magics.tools.files.notebook_view import NotebookView, view_notebook
from agent_magics.tools.files.table_views import TableView, view_csv, view_parquet

MOST_LINES = 250  # of one call by a model
TABLES = (".csv", ".tsv", ".tab")
_PARQUET = b"PAR1"


@tool(parallel=True, mutating=False, assess=assess_read)
def read_file(
    path: str,
    start_line: int | None = None,
    end_line: int | None = None,
    max_lines: int | None = None,
    offset_bytes: int | None = None,
    *,
    ctx: ToolContext | None = None,
) -> "str | FilePage | TableView | NotebookView":
    """Read a text file or lines of it, numbered, at most 250 a call.

    CSV and Parquet files come as shape, columns and first rows (start_line=1 reads a CSV file's
    lines), notebooks as cells.

    Args:
        start_line: counted from 1.
        offset_bytes: where to start instead.

    Returns:
        Called by hand: the text exactly as it stands in the file, whole if no window is given.

    Raises:
        RespondToModel: there is no such file, it is not text, or the window is not in it.
    """
    first, count = _window_asked_for(start_line, end_line, max_lines, offset_bytes)
    with opened(path, ctx) as (descriptor, resolved, shown):
        if ctx is not None and ctx.diff_tracker is not None:
            ctx.diff_tracker.saw(resolved)
        if _is_parquet(descriptor):
            table = view_parquet(descriptor, shown)
            return table if ctx is not None and not ctx.is_from_code else str(table)
        if ctx is None or ctx.is_from_code:
            found = files.read_text(descriptor, shown, first, count, offset_bytes)
            if ctx is None:
                _warn_of(found, shown)
            return found.text
        is_window = start_line or count or offset_bytes is not None
        count = min(count or MOST_LINES, MOST_LINES)
        view: TableView | NotebookView | None = None
        if resolved.suffix.lower() in TABLES and not is_window:
            view = view_csv(descriptor, shown)
        elif resolved.suffix.lower() == ".ipynb" and offset_bytes is None:
            view = view_notebook(descriptor, shown, first, count)
        if view is not None:
            return view
        cancelled = (lambda: False) if ctx is None else ctx.cancelled.is_set
        window = files.read_window(descriptor, shown, first, count, offset_bytes, cancelled)
        return FilePage(window, shown, from_byte=offset_bytes is not None)


def _is_parquet(descriptor: int) -> bool:
    return os.pread(descriptor, len(_PARQUET), 0) == _PARQUET


def _warn_of(found: TextWindow, shown: str) -> None:
    if found.lost:
        lost = number_of(found.lost, "byte")
        warning = f"{lost} of {shown} could not be decoded and read as \ufffd."
        warnings.warn(warning, UnicodeWarning, stacklevel=3)
    if found.encoding.guessed:
        warnings.warn(_guess_note(shown, found.encoding), UnicodeWarning, stacklevel=3)


def _guess_note(shown: str, encoding: Encoding) -> str:
    return f"{shown} is not UTF-8 and was read as {encoding.name}, which is a guess."


def _window_asked_for(
    start_line: int | None, end_line: int | None, max_lines: int | None, offset_bytes: int | None
) -> tuple[int, int | None]:
    """Check the window's arguments; return (first line, most lines)."""
    require_at_least(1, start_line=start_line, end_line=end_line, max_lines=max_lines)
    require_at_least(0, offset_bytes=offset_bytes)
    if offset_bytes is not None and (start_line is not None or end_line is not None):
        raise RespondToModel("Give either offset_bytes or start_line and end_line, not both.")
    first = start_line or 1
    if end_line is not None and end_line < first:
        raise RespondToModel(f"end_line={end_line} is before start_line={first}.")
    limits = [limit for limit in (max_lines, end_line and end_line - first + 1) if limit]
    return first, min(limits, default=None)


@dataclass(frozen=True, slots=True)
class FilePage:
    """A window of a file for the model."""

    window: Window
    shown: str
    from_byte: bool = False

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many numbered lines as fit into `budget` characters, and how to read on."""
        lines = list(self._numbered())
        count = count_fitting(lines, budget - FOR_NOTES)
        if count == 1:
            lines[0] = _cut(lines[0], max(budget - FOR_NOTES, 100))
        text = "\n".join((*lines[:count], *self._notes(count)))
        last = self.window.first + count - 1
        details: dict[str, Json] = {
            "path": self.shown,
            "first": self.window.first,
            "last": last,
            "total": self.window.total,
        }
        return ToolOutput(text, details=details)

    def _numbered(self) -> Iterator[str]:
        at = self.window.offset
        for number, line in enumerate(self.window.lines, start=self.window.first):
            mark = ""
            if line.cut_at:
                more, on = "" if line.ended else "more than ", at + line.cut_at
                length = f"{LINE_CHARACTERS:,} of {more}{line.length:,} characters"
                mark = f"… [cut: {length}; offset_bytes={on} reads on]"
            yield f"{number:4}| {line.text}{mark}"
            at += line.size

    def _notes(self, count: int) -> Iterator[str]:
        window = self.window
        if not window.lines and window.size:
            yield f"Nothing of {self.shown} begins there ({number_of(window.size, 'byte')})."
            return
        if not window.lines:
            yield f"{self.shown} is empty ({number_of(window.size, 'byte')})."
            return
        yield f"{self._which(count)}{self._how_on(count)}."
        if window.lost:
            how = "\\xNN" if window.encoding.width == 1 else "\ufffd"
            lost = number_of(window.lost, "byte")
            yield f"{lost} of {self.shown} could not be decoded and stands as {how}."
        if window.encoding.guessed:
            yield _guess_note(self.shown, window.encoding)
        elif window.encoding.name != "utf-8":
            yield f"The file is {window.encoding.name.upper()}."
        elif window.encoding.mark:
            yield "The file starts with a byte order mark."
        if crlf := sum(line.ends_crlf for line in window.lines[:count]):
            those = f"{crlf} of these {count} lines end{'s' * (crlf == 1)}"
            yield f"{'Its lines end' if crlf == count else those} with CRLF."

    def _which(self, count: int) -> str:
        window = self.window
        which = f"lines {window.first}-{window.first + count - 1}"
        if window.total is not None:
            return f"{which} of {window.total:,}"
        if self.from_byte:
            return f"{which} counted from byte {window.offset:,} of a file of {window.size:,} bytes"
        least = window.first + len(window.lines) - 1 + window.more
        return f"{which} of at least {least:,}, in a file of {window.size:,} bytes"

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
