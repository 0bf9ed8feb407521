"""Formats the Markdown tables of ``%agent`` commands."""

import re
from collections.abc import Sequence

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
