"""Changes of cells are kept until the person settles them, and told as one change a cell."""

from agent_magics.kernel.lab.cell_reviews import CellReviews
from agent_magics.kernel.lab.link import LabLink
from agent_magics.protocol.events import CellChanged
from tests.support.turns import scripted


def _change(cell: str, before: str | None, after: str | None) -> CellChanged:
    return CellChanged(
        turn_id="t", cell=cell, cell_type="code", before=before, after=after, step=f"{after}"
    )


def _cells(lab: LabLink, **fields: str) -> dict[str, str]:
    answer = lab.answers["cells"]({"act": "look", **fields})
    return {each["way"]["cell"]: each["diff"] for each in answer["cells"]}


def test_changes_of_a_cell_are_one_until_they_are_kept_or_reverted() -> None:
    lab = LabLink(None)
    CellReviews(lab)
    with scripted("Done.") as agent:
        for change in (
            _change("a", "1", "2"),
            _change("a", "2", "3"),
            _change("made", None, "new"),
            _change("gone", "x", None),
            _change("run", "x", "x"),
            _change("back", "1", "2"),
            _change("back", "2", "1"),
        ):
            lab.on_cell_changed(agent, change)
        assert _cells(lab) == {"made": "@@ -0,0 +1 @@\n+new", "a": "@@ -1 +1 @@\n-1\n+3"}
        assert list(_cells(lab, act="kept", cell="made")) == ["a"]
        assert _cells(lab, act="reverted", cell="a") == {}
        lab.on_cell_changed(agent, _change("a", "1", "4"))
        assert _cells(lab) == {"a": "@@ -1 +1 @@\n-1\n+4"}
