"""Restores the notebook's cells as before turns that changed them, and reverts that."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agent_magics.engine.channels.redaction import REDACTED
from agent_magics.kernel.lab.document import LabDocument
from agent_magics.kernel.lab.link import CellRef
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import CellChanged
from agent_magics.render.describe import one_line
from agent_magics.render.markdown import code_span

_BETWEEN = "you changed it between two of the turns"
_KEY = "a key stood in it, which is not on record"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWay:
    """How one cell is restored; the fields up to `step` are the page's, see ``rewind.ts``.

    Attributes:
        now, wanted: its text as the turns left it and as it is to be; None is for no such cell.
        first: the step before which the page kept it as it is to be.
        shown: the step that put its present outputs there, "" for none.
        step: the step under which the page keeps it as it is now.
        obstacle: why it is left alone; "" where nothing stands in the way.
    """

    cell: str
    cell_type: str
    now: str | None
    wanted: str | None
    above: str
    index: int
    first: str
    shown: str
    step: str
    obstacle: str = ""

    @property
    def name(self) -> str:
        """What a person knows it by: the beginning of its text."""
        return code_span(one_line(self.now or self.wanted or "") or "an empty cell")


def ways_of(changes: Iterable[CellChanged]) -> list[CellWay]:
    """Join changes by cell, oldest first; return how to undo them, the newest first."""
    ways: dict[str, CellWay] = {}
    for change in changes:
        before = ways.pop(change.cell, None)  # the last change decides the order
        shown = change.step if change.before == change.after else ""
        way = CellWay(
            cell=change.cell,
            cell_type=change.cell_type,
            now=change.after,
            wanted=change.before,
            above=change.above,
            index=change.index,
            first=change.step,
            shown=shown,
            step=uuid.uuid4().hex,
        )
        if before is not None:
            obstacle = before.obstacle or ("" if before.now == change.before else _BETWEEN)
            way = replace(
                way,
                wanted=before.wanted,
                first=before.first,
                shown=shown or before.shown,
                obstacle=obstacle,
            )
        if REDACTED in f"{way.now}{way.wanted}":
            way = replace(way, obstacle=_KEY)
        ways[change.cell] = way
    return [way for way in reversed(ways.values()) if way.now is not None or way.wanted is not None]


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
            return str(error).rstrip(".")
        return [*zip(free, reply["cells"], strict=True), *blocked]

    def _lines(self, done: str | list[_Answered]) -> list[str]:
        if isinstance(done, str):
            names = dict.fromkeys(way.name for way in self._ways)
            return [f"- Cells stay as they are, since {done}: {', '.join(names)}."]
        verbs: dict[str, list[str]] = {}
        for way, answer in done:
            if answer.get("is_due"):
                verbs.setdefault(_verb(way), []).append(way.name)
        parts = "; ".join(f"{verb} {', '.join(names)}" for verb, names in verbs.items())
        left = [
            f"- Left alone: the cell {way.name}, since {answer['obstacle']}."
            for way, answer in done
            if answer.get("obstacle")
        ]
        return [f"- Cells: {parts or 'none'}.", *left]


def _verb(way: CellWay) -> str:
    if way.wanted is None:
        return "removed"
    if way.now is None:
        return "brought back"
    return "earlier outputs of" if way.now == way.wanted else "earlier text of"


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
