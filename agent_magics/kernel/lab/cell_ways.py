"""Computes from the recorded changes of cells how each cell is restored."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent_magics.engine.channels.redaction import REDACTED
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
