"""Tables in Markdown, as the words of ``%agent`` show them."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[\d.,]+( [\w%]+)?|-|")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown, in which signs and line ends do no harm to it."""

    def row_of(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    columns = zip(*rows, strict=True) if rows else [()] * len(head)
    # Said, since JupyterLab puts everything to the right otherwise.
    sides = [" ---: |" if all(map(_NUMBER.fullmatch, column)) else " :--- |" for column in columns]
    return "\n".join([row_of(head), "|" + "".join(sides), *map(row_of, rows)])
