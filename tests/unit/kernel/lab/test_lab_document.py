"""What stands in a cell is what the page shows; a page that is silent may come again."""

import asyncio

import pytest

from agent_magics.kernel.lab import document as lab_document
from agent_magics.kernel.lab.document import LabDocument
from agent_magics.kernel.lab.link import CellRef, LabLink
from agent_magics.protocol.errors import RespondToModel
from tests.unit.kernel.lab.test_lab_link import KernelWithComms


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


def test_a_page_that_is_silent_is_told_that_it_is_taken_for_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab_document, "LIMIT", 0.01)
    link = LabLink(kernel := KernelWithComms())
    link.askers["turn"] = CellRef("cell", "me")
    link._let_in("comm", {"inbox": "i", "client": "me", "path": "a.ipynb"})
    with pytest.raises(RespondToModel, match="did not answer"):
        asyncio.run(LabDocument(link).request("turn", "read"))
    assert kernel.session.sent[-1] == {"type": "goodbye", "again": True}
    assert link.pages == ()
    knock = {"type": "knock", "inbox": "i", "client": "me", "path": "a.ipynb"}
    link._control(None, None, {"content": {"comm_id": "again", "data": knock}})
    assert [page.comm_ids for page in link.pages] == [{"again"}]
