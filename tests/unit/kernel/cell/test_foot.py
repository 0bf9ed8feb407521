"""The line at a running cell's foot belongs to one run, also where the cell is run twice."""

from typing import Any

from agent_magics.kernel.cell.foot import CellFoot
from agent_magics.kernel.lab.link import LabLink


def test_a_run_that_ends_leaves_the_line_of_a_later_run_of_its_cell() -> None:
    """The first goes on in the background while another agent is asked in the same cell."""
    lab = LabLink(None)
    session: Any = None
    first, second = (CellFoot(lab, "cell", session, bool) for _ in range(2))
    first.begin()
    second.begin()
    first.end()
    assert lab.feet == {"cell": second}
    second.end()
    assert not lab.feet
