"""Tables in Markdown, as the words of ``%agent`` show them."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; its cells are Markdown, in which signs and line ends do no harm to it."""

    def row_of(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    return "\n".join([row_of(head), "|" + " --- |" * len(head), *map(row_of, rows)])
