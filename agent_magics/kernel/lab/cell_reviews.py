"""Keeps what agents changed in cells of the notebook until the person keeps or reverts it.

Law: a page restores a cell only where it reads as the agent left it (``rewind.ts``), so nothing
that the person has typed since is lost. Nothing of this is saved, so it ends with the kernel.
"""

from dataclasses import asdict
from threading import Lock

from agent_magics.app import Agent
from agent_magics.kernel.lab.cell_ways import CellWay, ways_of
from agent_magics.kernel.lab.link import Data, LabLink
from agent_magics.protocol.events import CellChanged
from agent_magics.protocol.items import Json
from agent_magics.text.differences import hunks_of

_MOST_DIFF = 50_000  # characters
_MOST_CHANGES = 1_000


class CellReviews:
    """The changes of cells that the person has not settled yet; thread-safe.

    Args:
        lab: the pages, which are told when there are others.
    """

    def __init__(self, lab: LabLink) -> None:
        self._lab = lab
        self._changes: list[tuple[Agent, CellChanged]] = []
        self._lock = Lock()
        lab.on_cell_changed = self._hear
        lab.answers["cells"] = self._answer

    def _hear(self, agent: Agent, change: CellChanged) -> None:
        with self._lock:
            self._changes.append((agent, change))
            if len(self._changes) > _MOST_CHANGES:
                self._forget(self._changes[0][1].cell)
        self._tell_pages()

    def _tell_pages(self) -> None:
        for page in self._lab.pages:
            page.say("cells")

    def _answer(self, question: Data) -> dict[str, Json]:
        """Return the changed cells, after a page has kept or reverted one (`act` and `cell`)."""
        match question:
            case {"act": "kept" | "reverted" as act, "cell": str(cell)}:
                self._settle(cell, is_reverted=act == "reverted")
        with self._lock:
            ways = ways_of(change for _, change in self._changes)
        return {
            "cells": [
                _described(way) for way in ways if way.now is not None and way.now != way.wanted
            ]
        }

    def _settle(self, cell: str, *, is_reverted: bool) -> None:
        with self._lock:
            agents = {id(agent): agent for agent, each in self._changes if each.cell == cell}
            self._forget(cell)
        if is_reverted:
            for agent in agents.values():
                agent.session.conversation.tell(
                    f"The person reverted what you did to cell {cell} of the notebook. Do not do "
                    "it again unless asked, and read the notebook before you change it."
                )
        self._tell_pages()

    def _forget(self, cell: str) -> None:
        self._changes = [pair for pair in self._changes if pair[1].cell != cell]


def _described(way: CellWay) -> dict[str, Json]:
    diff = "\n".join(hunks_of((way.wanted or "").splitlines(), (way.now or "").splitlines()))
    if len(diff) > _MOST_DIFF:
        diff = f"{diff[:_MOST_DIFF]}\n… {len(diff) - _MOST_DIFF:,} characters more …"
    return {"way": asdict(way), "diff": diff}
