"""Restores the notebook's cells as before turns that changed them, and reverts that."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from agent_magics.kernel.lab.cell_ways import CellWay
from agent_magics.kernel.lab.document import LabDocument
from agent_magics.kernel.lab.link import CellRef
from agent_magics.protocol.errors import FatalError, clause

_Answered = tuple[CellWay, Mapping[str, Any]]


class NotebookCells:
    """Undoes changes of cells in the page that shows them.

    Args:
        document: the open notebook.
        asker: the cell in which the command runs.
        ways: how each cell is restored.
    """

    def __init__(self, document: LabDocument, asker: CellRef, ways: Sequence[CellWay]) -> None:
        self._document = document
        self._asker = asker
        self._ways = ways

    def preview(self) -> list[str]:
        """Return what would be done, as lines."""
        return self._lines(self._restore(preview=True))

    def restore(self) -> tuple[list[str], list[CellWay]]:
        """Restore the cells.

        Returns:
            What was done, as lines; how it can be reverted.
        """
        done = self._restore(preview=False)
        answers = [] if isinstance(done, str) else done
        forth = [_reverse(way, answer) for way, answer in answers if answer.get("is_due")]
        return self._lines(done), forth[::-1]

    def _restore(self, *, preview: bool) -> str | list[_Answered]:
        """Ask the page; return why that is not possible, or what it replies for each cell."""
        free = [way for way in self._ways if not way.obstacle]
        blocked: list[_Answered] = [
            (way, {"obstacle": way.obstacle}) for way in self._ways if way.obstacle
        ]
        if not free:
            return blocked
        try:
            reply = self._document.restore(self._asker, list(map(asdict, free)), preview=preview)
        except FatalError as error:
            return clause(error)
        return [*zip(free, reply["cells"], strict=True), *blocked]

    def _lines(self, done: str | list[_Answered]) -> list[str]:
        if isinstance(done, str):
            names = dict.fromkeys(way.name for way in self._ways)
            return [f"- Cells stay as they are, since {done}: {', '.join(names)}."]
        due = [f"{way.name} ({_fate(way)})" for way, answer in done if answer.get("is_due")]
        left = [
            f"- Left alone: the cell {way.name}, since {answer['obstacle']}."
            for way, answer in done
            if answer.get("obstacle")
        ]
        return [f"- Cells: {', '.join(due) or 'none'}.", *left]


def _fate(way: CellWay) -> str:
    if way.wanted is None:
        return "gone"
    if way.now is None:
        return "back"
    return "outputs" if way.now == way.wanted else "text"


def _reverse(way: CellWay, answer: Mapping[str, Any]) -> CellWay:
    """Return the way back of what the page did."""
    return replace(
        way,
        now=way.wanted,
        wanted=way.now,
        above=str(answer.get("above", "")),
        index=int(answer.get("index", 0)),
        first=way.step,
        shown=way.step if way.shown else "",
        step=uuid.uuid4().hex,
    )
