"""What stands in a cell is what the page shows there."""

import pytest

from agent_magics.kernel.lab.document import LabDocument
from agent_magics.kernel.lab.link import LabLink


@pytest.mark.parametrize("end", ["\r\n", "\r"], ids=["of Windows", "returns"])
@pytest.mark.parametrize("kind", ["code", "markdown", "raw"])
def test_lines_of_a_cell_end_as_its_editor_counts_them(kind: str, end: str) -> None:
    """JupyterLab's editor takes each end for one character: what is typed later goes astray."""
    document = LabDocument(LabLink(None))
    assert document.as_written(kind, f"a = 1{end}b = 2") == "a = 1\nb = 2"


def test_paragraphs_of_a_person_are_kept_whatever_their_lines_end_in() -> None:
    document = LabDocument(LabLink(None))
    own = "<b>mine</b>"
    written = document.as_written("markdown", f"{own}\n\nnew", before=f"{own}\r\n\r\nold")
    assert written == f"{own}\n\nnew"
