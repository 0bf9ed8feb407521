"""Formats a unified diff as HTML with old and new side by side, made of our own tags alone.

Law: every word of a file is escaped, no attribute holds any of it, and nothing here can act.
"""

import html
import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from agent_magics.render.visible import show_invisible

_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_MOST_ROWS = 2_000
_OPEN_ROWS = 60  # a longer file is folded
_CELL = (
    "padding:0 .5em;text-align:left;white-space:pre-wrap;overflow-wrap:anywhere;vertical-align:top;"
)
_NUMBER = (
    "padding:0 .5em;text-align:right;vertical-align:top;width:1%;user-select:none;"
    "color:var(--jp-ui-font-color2,#666);"
)
_REMOVED = "background:rgba(218,54,51,.18);"
_ADDED = "background:rgba(46,160,67,.18);"
_NOTHING = "background:rgba(128,128,128,.08);"
# (JupyterLab gives every other row of a table a colour of its own.)
_LINE = '<tr style="background:none">'
_TABLE = (
    "width:100%;min-width:40em;table-layout:fixed;border-collapse:collapse;text-align:left;"
    "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px);"
)


class _TableRow(NamedTuple):
    """One table row: a line of the old and of the new file; "" and None for a missing line."""

    old_number: str
    old: str | None
    new_number: str
    new: str | None
    is_same: bool


def side_by_side(diff: str, heading: str, facts: Sequence[str] = ()) -> str:
    """Return HTML for a unified diff with git's headers, old and new text side by side.

    Args:
        diff: a unified diff with ``diff --git`` headers.
        heading: the title of the page.
        facts: sentences shown above the diff.

    Returns:
        One ``<div>`` without scripts, links or text of the files in attributes.
    """
    parts = [f"<div><strong>{_escaped(heading)}</strong>"]
    parts += [f"<div>{_escaped(fact)}</div>" for fact in facts]
    left = _MOST_ROWS
    for name, lines in _files(diff):
        shown = list(_draw(lines[:left]))
        left = max(0, left - len(lines))
        is_open = " open" if len(lines) <= _OPEN_ROWS else ""
        parts.append(f'<details{is_open} style="overflow-x:auto">')
        parts.append(f"<summary><code>{_escaped(name)}</code></summary>")
        if shown:
            parts.append(f'<table style="{_TABLE}">{_COLUMNS}{"".join(shown)}</table>')
        parts.append("</details>")
    if not left:
        parts.append(f"<div>Only the first {_MOST_ROWS:,} lines are shown.</div>")
    return "".join(parts) + "</div>"


_WIDTHS = ("4em", "50%", "4em", "50%")
_COLUMNS = (
    "<colgroup>" + "".join(f'<col style="width:{width}">' for width in _WIDTHS) + "</colgroup>"
    "<thead><tr>"
    f'<th colspan="2" style="{_CELL}">Before</th><th colspan="2" style="{_CELL}">After</th>'
    "</tr></thead>"
)


def _files(diff: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each file's name and the lines of its part of the diff."""
    name, lines = "", list[str]()
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            if name:
                yield name, lines
            # The name stands twice: "a/NAME b/NAME", or "/NAME /NAME" outside the workspace.
            both = line.removeprefix("diff --git ")
            name, lines = both[: len(both) // 2].removeprefix("a/"), []
        else:
            lines.append(line)
    if name:
        yield name, lines


def _draw(lines: Sequence[str]) -> Iterator[str]:
    for row in _rows(lines):
        if isinstance(row, str):
            style = _CELL + "color:var(--jp-ui-font-color2,#666);"
            yield f'{_LINE}<td colspan="4" style="{style}">{_escaped(row)}</td></tr>'
            continue
        sides = ((row.old_number, row.old, _REMOVED), (row.new_number, row.new, _ADDED))
        yield _LINE + "".join(_side(*side, row.is_same) for side in sides) + "</tr>"


def _side(number: str, text: str | None, colour: str, is_same: bool) -> str:
    if text is None:
        return f'<td style="{_NUMBER}{_NOTHING}"></td><td style="{_CELL}{_NOTHING}"></td>'
    paint = "" if is_same else colour
    # A sign beside the colour, for those who cannot see it.
    sign = "&nbsp;" if is_same else "&minus;" if colour == _REMOVED else "+"
    return (
        f'<td style="{_NUMBER}{paint}">{number}</td>'
        f'<td style="{_CELL}{paint}">{sign} {_escaped(text)}</td>'
    )


def _rows(lines: Sequence[str]) -> Iterator["_TableRow | str"]:
    hunk: _HunkRows | None = None
    for line in lines:
        if found := _HUNK.match(line):
            yield from hunk.flush() if hunk else ()
            hunk = _HunkRows(int(found[1]), int(found[2]))
            yield line
        elif hunk is not None:
            yield from hunk.take(line)
        elif line and not line.startswith(("--- ", "+++ ")):
            yield line
    yield from hunk.flush() if hunk else ()


class _HunkRows:
    """Pairs the removed and added lines of one hunk into rows."""

    def __init__(self, old_at: int, new_at: int) -> None:
        self._old_at, self._new_at = old_at, new_at
        self._removed: list[str] = []
        self._added: list[str] = []

    def take(self, line: str) -> Iterator[_TableRow]:
        if line.startswith("-"):
            self._removed.append(line[1:])
        elif line.startswith("+"):
            self._added.append(line[1:])
        elif line.startswith("\\"):
            for side in (self._added or self._removed,):
                side[-1:] = [f"{text}  ({line[2:]})" for text in side[-1:]]
        elif line:
            yield from self.flush()
            yield _TableRow(str(self._old_at), line[1:], str(self._new_at), line[1:], is_same=True)
            self._old_at, self._new_at = self._old_at + 1, self._new_at + 1

    def flush(self) -> Iterator[_TableRow]:
        for old, new in zip_longest(self._removed, self._added):
            old_number = "" if old is None else str(self._old_at)
            new_number = "" if new is None else str(self._new_at)
            yield _TableRow(old_number, old, new_number, new, is_same=False)
            self._old_at += old is not None
            self._new_at += new is not None
        self._removed, self._added = [], []


def _escaped(text: str) -> str:
    return html.escape(show_invisible(text), quote=True)
