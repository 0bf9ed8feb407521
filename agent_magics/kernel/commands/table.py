"""Formats the Markdown tables of ``%agent`` commands."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_NUMBER = re.compile(r"[\d.,]+( [\w%]+)?|-|")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; "|" and line ends in the cells are escaped.

    Args:
        head: the headings.
        rows: the cells, as Markdown.
    """

    def row_of(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    columns = zip(*rows, strict=True) if rows else [()] * len(head)
    # Explicit, since JupyterLab aligns everything to the right otherwise.
    sides = [" ---: |" if all(map(_NUMBER.fullmatch, column)) else " :--- |" for column in columns]
    return "\n".join([row_of(head), "|" + "".join(sides), *map(row_of, rows)])


def words_table(line: str, actions: Mapping[str, Callable[..., Any]]) -> str:
    """Return the help of a line magic: each word with the first line of its function's docstring.

    Args:
        line: what stands before the word.
        actions: the functions by their words.
    """
    return table(
        ("", ""),
        [
            (f"`{line} {word}`", (action.__doc__ or "").strip().partition("\n")[0])
            for word, action in actions.items()
        ],
    )
