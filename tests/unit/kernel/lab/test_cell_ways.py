"""How changes of cells are joined to what a rewind restores."""

import pytest

from agent_magics.kernel.lab.cell_ways import ways_of
from agent_magics.protocol.events import CellChanged


def change(cell: str, before: str | None, after: str | None, step: str) -> CellChanged:
    return CellChanged(
        cell=cell, cell_type="code", before=before, after=after, step=step, above=step
    )


@pytest.mark.parametrize(
    ("changes", "joined"),
    [
        ([("c", "1", "2", "s")], [("c", "2", "1", "s", "", "")]),
        ([("c", "1", "2", "s"), ("c", "2", "3", "t")], [("c", "3", "1", "s", "", "")]),
        ([("c", None, "2", "s"), ("c", "2", None, "t")], []),
        ([("c", "1", "2", "s"), ("c", "2", None, "t")], [("c", None, "1", "s", "", "")]),
        ([("c", "1", "1", "s"), ("c", "1", "2", "t")], [("c", "2", "1", "s", "s", "")]),
        ([("c", "1", "2", "s"), ("c", "5", "3", "t")], [("c", "3", "1", "s", "", "between")]),
        ([("c", "[redacted]", "2", "s")], [("c", "2", "[redacted]", "s", "", "key")]),
        (
            [("c", "1", None, "s"), ("d", "1", None, "t")],
            [("d", None, "1", "t", "", ""), ("c", None, "1", "s", "", "")],
        ),
    ],
    ids=["edit", "edits", "made and deleted", "deleted", "run", "between", "key", "newest first"],
)
def test_changes_of_a_cell_are_joined(changes, joined):
    ways = ways_of(change(*each) for each in changes)
    found = [(w.cell, w.now, w.wanted, w.first, w.shown, w.obstacle) for w in ways]
    assert [each[:5] for each in found] == [each[:5] for each in joined]
    for each, (*_, word) in zip(found, joined, strict=True):
        assert word in each[5] and bool(word) == bool(each[5])
