"""``notebook_read``, and what all notebook tools share: the open document, and views of its cells.

They work on the live document, in the page where the person has it open, never on its file: the
editor's version would overwrite the file, or ask the person which of the two to keep.
"""

from collections.abc import Mapping
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.cutting import cut_text
from agent_magics.dispatch.stages.stored_outputs import refer
from agent_magics.dispatch.tool import tool
from agent_magics.dispatch.turn import LiveDocument
from agent_magics.files.beneath import real_path
from agent_magics.files.paths import open_notebook
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import ContentPart, InputImage, InputText
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import number_of
from agent_magics.tools.files.access import judge_of

MOST_CELLS = 50
# Characters shown of one cell and of one of its outputs where many cells are read.
_CELL, _OUTPUT = 2_000, 400


def document_of(ctx: ToolContext | None) -> LiveDocument:
    """Return the notebook that is open in the person's page.

    Raises:
        RespondToModel: none is open.
    """
    kernel = None if ctx is None else ctx.turn.live_kernel
    document = getattr(kernel, "document", None)
    if document is None:
        raise RespondToModel(
            "There is no open notebook here: the notebook tools work for agents in cells of a "
            "notebook that is open in JupyterLab."
        )
    path = open_notebook()
    if ctx is not None and path and (reason := judge_of(ctx).ruled(real_path(path))):
        raise RespondToModel(f"The open notebook is not shown: {reason}.")
    found: LiveDocument = document
    return found


@tool(mutating=False, parallel=True)
async def notebook_read(
    cell_id: str = "", start: int = 1, limit: int = 20, *, ctx: ToolContext | None = None
) -> ToolOutput:
    """Read the notebook that is open in front of the person: cells with ids, versions and outputs.

    Long cells and outputs are cut, and pictures only named; to see all of one cell with its
    pictures, give its id.

    Args:
        cell_id: read this cell alone, whole.
        start: number of the first cell to read, from 1.
        limit: how many cells, at most 50.
    """
    document = document_of(ctx)
    assert ctx is not None
    if start < 1 or not 1 <= limit <= MOST_CELLS:
        raise RespondToModel(f"start counts from 1, and limit is 1 to {MOST_CELLS}.")
    found = await document.request(ctx.turn_id, "read", start=start - 1, limit=limit, cell=cell_id)
    own = document.asker(ctx.turn_id)
    cells: list[Mapping[str, Any]] = found["cells"]
    parts = [_cell_text(document, cell, own, whole=bool(cell_id)) for cell in cells]
    total = found["total"]
    last = start - 1 + len(cells)
    if not cell_id:
        head = f"{found['path']}: {number_of(total, 'cell')}" + (
            f", here {start} to {last}" if cells else ""
        )
        parts.insert(0, head)
        if last < total:
            parts.append(f"[{total - last} more cells: read on with start={last + 1}.]")
    return _output("\n\n".join(parts), images_of(cells), ctx)


def _output(whole: str, images: list[str], ctx: ToolContext) -> ToolOutput:
    shown, left_out = cut_text(whole, ctx.output_budget)
    text = f"{shown.rstrip()}\n{refer(whole, ctx, was_cut=True)}" if left_out else shown
    content: str | tuple[ContentPart, ...] = text
    if images:
        content = (InputText(text), *map(InputImage, images))
    return ToolOutput(content, details={"output": shown}, value=whole, is_fitted=True)


def _cell_text(document: LiveDocument, cell: Mapping[str, Any], own: str, *, whole: bool) -> str:
    """Return the model's view of one cell, with a heading that names it."""
    version = document.remember(cell["id"], cell["source"], cell["type"])
    heading = [f"[{cell['index'] + 1}] {cell['type']} cell {cell['id']}", f"version {version}"]
    if cell["count"] is not None:
        heading.append(f"run as [{cell['count']}]")
    if cell["running"]:
        heading.append("running")
    if cell["read_only"]:
        heading.append("read-only")
    if cell["id"] == own:
        heading.append("your own cell, which you cannot change")
    lines = [", ".join(heading), cut_text(cell["source"], 10**9 if whole else _CELL)[0]]
    for output in cell["outputs"]:
        text = cut_text(output["text"], 10**9 if whole else _OUTPUT)[0].rstrip()
        if output.get("image") and not text.startswith("["):
            text = f"[figure: {text}]"
        lines.append(f"{'Error' if output.get('error') else 'Output'}: {text}")
    return "\n".join(lines)


def images_of(cells: list[Mapping[str, Any]]) -> list[str]:
    """Return the images among the outputs of cells, as ``data:`` URLs."""
    outputs = [output for cell in cells for output in cell["outputs"]]
    return [output["image"] for output in outputs if output.get("image")]
