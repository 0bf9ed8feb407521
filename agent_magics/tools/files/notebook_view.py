"""Formats a notebook for the model: cells with ids and types, outputs shortened.

The JSON around them is of no use to it, and the pictures in it would fill its context.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_magics.files.paths import printable
from agent_magics.files.plain_files import load_json
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import FOR_NOTES, count_fitting

MOST_BYTES = 64 * 1024 * 1024
OUTPUT_LINES = 10
OUTPUT_CHARACTERS = 1_000
_LINE_CHARACTERS = 2_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class NotebookView:
    """A page of a notebook shown as numbered lines.

    Attributes:
        lines: all lines of the view.
        first: number of the page's first line, from 1.
        count: the most lines of the page.
    """

    shown: str
    lines: tuple[str, ...]
    first: int = 1
    count: int = 250

    def to_output(self, budget: int) -> ToolOutput:
        """Return as many numbered lines as fit into `budget` characters, and how to read on."""
        page = self.lines[self.first - 1 : self.first - 1 + self.count]
        numbered = [f"{n:4}| {line}" for n, line in enumerate(page, self.first)]
        fitting = count_fitting(numbered, budget - FOR_NOTES)
        last = self.first + fitting - 1
        on = f"; go on with start_line={last + 1}" if last < len(self.lines) else ""
        note = (
            f"lines {self.first}-{last} of {len(self.lines):,} of the notebook shown as cells{on}. "
            "offset_bytes=0 reads the raw JSON."
        )
        return ToolOutput("\n".join((*numbered[:fitting], note)), details={"path": self.shown})


def view_notebook(descriptor: int, shown: str, first: int, count: int) -> NotebookView | None:
    """Return the view of an opened notebook; None where it is no notebook, or too large.

    Args:
        descriptor: the opened file.
        shown: its name for messages.
        first: the first line of the view to show, from 1.
        count: the most lines to show.

    Raises:
        RespondToModel: the view has no such line.
    """
    if os.fstat(descriptor).st_size > MOST_BYTES:
        return None
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        data = file.read()
    try:
        notebook = load_json(data)
    except ValueError:
        return None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        return None
    lines = tuple(line for entry in _describe(notebook, shown) for line in _cut(entry))
    if first > len(lines):
        raise RespondToModel(
            f"{shown}, shown as cells, has {number_of(len(lines), 'line')}, so there is no line "
            f"{first:,}."
        )
    return NotebookView(shown, lines, first, count)


def _describe(notebook: Mapping[str, Any], shown: str) -> Iterator[str]:
    cells = [cell for cell in notebook["cells"] if isinstance(cell, dict)]
    kinds = Counter(str(cell.get("cell_type")) for cell in cells)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    kernel = _at(notebook, "metadata", "kernelspec", "name")
    with_kernel = f", kernel {kernel}" if kernel else ""
    yield f"{shown}: {number_of(len(cells), 'cell')}{f' ({counts})' if counts else ''}{with_kernel}"
    for number, cell in enumerate(cells, 1):
        yield ""
        yield from _cell_lines(number, cell)


def _cell_lines(number: int, cell: Mapping[str, object]) -> Iterator[str]:
    heading = [f"[{number}] {cell.get('cell_type')}"]
    if cell.get("id"):
        heading.append(f"id={cell['id']}")
    if cell.get("execution_count") is not None:
        heading.append(f"In [{cell['execution_count']}]")
    if tags := _at(cell, "metadata", "tags"):
        heading.append(f"tags={tags}")
    yield "-- " + printable(", ".join(heading))
    yield from _text(cell.get("source")).split("\n")
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if isinstance(output, dict):
            yield from _output_lines(output)


def _output_lines(output: Mapping[str, object]) -> Iterator[str]:
    kind = output.get("output_type")
    if kind == "stream":
        yield from _short(f"{output.get('name', 'stream')}", _text(output.get("text")))
    elif kind == "error":
        trace = output.get("traceback")
        frames = [f"\n{frame}" for frame in trace] if isinstance(trace, list) else []
        error = f"{output.get('ename')}: {output.get('evalue')}"
        yield from _short("error", "".join((error, *frames)))
    else:
        data = output.get("data")
        forms = data if isinstance(data, dict) else {}
        named = [_named(str(mime), value) for mime, value in forms.items() if mime != "text/plain"]
        yield from _short(", ".join([*named, "text/plain"]), _text(forms.get("text/plain", "")))


def _named(mime: str, value: object) -> str:
    size = len(value if isinstance(value, str) else _text(value) or json.dumps(value))
    return f"{mime} of {size:,} characters"


def _short(label: str, text: str) -> Iterator[str]:
    """Yield the label and the start of an output, and the count of characters left out."""
    text = _COLOURS.sub("", text).rstrip("\n")
    kept = text[:OUTPUT_CHARACTERS].split("\n")[:OUTPUT_LINES]
    yield f"=> {printable(label)}"
    yield from (f"   {line}" for line in kept if text)
    left = len(text) - len("\n".join(kept))
    if left:
        yield f"   … {left:,} more characters"


def _text(source: object) -> str:
    """Return the text of a multiline string, which nbformat may store as a list of lines."""
    if isinstance(source, list):
        return "".join(part for part in source if isinstance(part, str))
    return source if isinstance(source, str) else ""


def _at(found: object, *keys: str) -> object:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _cut(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        if len(line) > _LINE_CHARACTERS:
            mark = f"… [cut: {_LINE_CHARACTERS:,} of {len(line):,} characters]"
            yield f"{line[:_LINE_CHARACTERS]}{mark}"
        else:
            yield line
