"""``notebook_insert_cell``, ``_edit_cell``, ``_delete_cell``, ``_run_cell``, on the open notebook.

Each change is one step of the notebook's own undo, shown to the person beforehand as a diff.
"""

import re
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from agent_magics.approval.actions import Action, ActionKind
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.dispatch.turn import LiveDocument
from agent_magics.protocol.errors import RespondToModel, full_message
from agent_magics.protocol.events import CellChanged, PatchApplyEnd
from agent_magics.protocol.items import InputImage, InputText, Json
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.differences import unified_diff
from agent_magics.text.line_ends import with_newlines
from agent_magics.tools.notebook.cells import document_of

_REASON = "it changes the notebook that is open in front of you"
_AGENT = re.compile(r"\s*%%agent\b")
# What stands for a picture in the text of a run.
_FIGURE = re.compile(r"^\[figure: .*\]\n?", re.MULTILINE)


# -- what a person is asked -----------------------------------------------------------------------


def _change(verb: str, where: str, diff: str) -> list[Action]:
    # "Always" covers changes of the open notebook: each is seen, and can be undone.
    return [
        Action(
            ActionKind.NOTEBOOK_CHANGE,
            target=f"{verb} {where}",
            reason=_REASON,
            fingerprint="notebook:change",
            identity=f"notebook:{verb}:{where}:{diff}",
            shown=diff,
        )
    ]


def _assess_insert(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    kind = arguments.get("kind", "code")
    after = arguments.get("after", "")
    source = document_of(ctx).as_written(kind, arguments["source"])
    where = f"below cell {after}" if after else "below the agent's cell"
    return _change(f"insert a {kind} cell", where, _diff("", source, "new cell"))


def _assess_edit(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    cell_id = arguments["cell_id"]
    before = _known(cell_id, arguments["version"], ctx)
    document = document_of(ctx)
    source = document.as_written(document.kind_of(cell_id), arguments["source"], before)
    if before == source:
        raise RespondToModel("The cell reads so already: there is nothing to change.")
    return _change("edit", f"cell {cell_id}", _diff(before, source, cell_id))


def _assess_delete(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    cell_id = arguments["cell_id"]
    before = _known(cell_id, arguments["version"], ctx)
    return _change("delete", f"cell {cell_id}", _diff(before, "", cell_id))


def _opened(ctx: ToolContext | None) -> tuple[LiveDocument, ToolContext]:
    """Return the open notebook, and the context of the call, which only a turn has."""
    document = document_of(ctx)
    assert ctx is not None  # else there is no document
    return document, ctx


def _known(cell_id: str, version: str, ctx: ToolContext) -> str:
    """Return the cell's text in the version that the model read; refuse the model's own cell."""
    document = document_of(ctx)
    if cell_id == document.asker(ctx.turn_id):
        raise RespondToModel(
            "That is the cell that you run in; it cannot be changed or run. Insert another one."
        )
    return document.read_as(cell_id, version)


def _diff(before: str, after: str, name: str) -> str:
    return unified_diff(before, after, f"cell {name}", f"cell {name}")


# -- the tools ------------------------------------------------------------------------------------


@tool(assess=_assess_insert)
async def notebook_insert_cell(
    source: str,
    after: str = "",
    kind: Literal["code", "markdown", "raw"] = "code",
    *,
    ctx: ToolContext | None = None,
) -> ToolOutput:
    """Put a new cell into the notebook that is open in front of the person; it is not run.

    Args:
        source: its text.
        after: id of the cell above it; left out, it comes directly below your own cell.
        kind: what cell it is.
    """
    document, ctx = _opened(ctx)
    written = document.as_written(kind, source)
    above = after or document.asker(ctx.turn_id)
    made = await document.request(ctx.turn_id, "insert", after=above, kind=kind, source=written)
    version = document.remember(made["id"], written, kind)
    ctx.emit(PatchApplyEnd, success=True, diff=_diff("", written, "new cell"))
    place_of_it = {"above": above, "index": made["index"]}
    _keep(ctx, made["id"], kind, None, written, uuid.uuid4().hex, **place_of_it)
    place = f"cell {made['id']}, number {made['index'] + 1}, version {version}"
    return ToolOutput(
        f"Inserted as {place}.{_note_of_rewriting(source, written)}",
        details={"output": ""},
    )


@tool(assess=_assess_edit)
async def notebook_edit_cell(
    cell_id: str, source: str, version: str, *, ctx: ToolContext | None = None
) -> ToolOutput:
    """Replace the text of a cell in the open notebook; it is not run, its outputs stay.

    Args:
        cell_id: the cell.
        source: all of its new text.
        version: the version that notebook_read showed; if the person has changed the cell since,
            nothing is done and you are told what stands there.
    """
    document, ctx = _opened(ctx)
    before = document.read_as(cell_id, version)
    kind = document.kind_of(cell_id)
    written = document.as_written(kind, source, before)
    step = uuid.uuid4().hex
    wish = {"cell": cell_id, "kind": kind, "expected": before, "source": written, "step": step}
    await document.request(ctx.turn_id, "edit", **wish)
    _keep(ctx, cell_id, kind, before, written, step)
    ctx.emit(PatchApplyEnd, success=True, diff=_diff(before, written, cell_id))
    now = document.remember(cell_id, written, kind)
    return ToolOutput(
        f"Cell {cell_id} is changed; it is now version {now}.{_note_of_rewriting(source, written)}",
        details={"output": ""},
    )


def _note_of_rewriting(source: str, written: str) -> str:
    """Return a note where a cell's text differs from what the model wrote; else ""."""
    if written == with_newlines(source):
        return ""
    return f" Pictures, HTML and signs that could act are written otherwise; it reads:\n{written}"


@tool(assess=_assess_delete)
async def notebook_delete_cell(
    cell_id: str, version: str, *, ctx: ToolContext | None = None
) -> ToolOutput:
    """Delete a cell of the open notebook, with its outputs; the person can undo it.

    Args:
        cell_id: the cell.
        version: the version that notebook_read showed.
    """
    document, ctx = _opened(ctx)
    before = document.read_as(cell_id, version)
    step = uuid.uuid4().hex
    wish = {"cell": cell_id, "expected": before, "step": step}
    was = await document.request(ctx.turn_id, "delete", **wish)
    kind = document.kind_of(cell_id)
    _keep(ctx, cell_id, kind, before, None, step, above=was["above"], index=was["index"])
    ctx.emit(PatchApplyEnd, success=True, diff=_diff(before, "", cell_id))
    return ToolOutput(f"Cell {cell_id} is deleted.", details={"output": ""})


def _assess_run(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    source = _known(arguments["cell_id"], arguments["version"], ctx)
    if _AGENT.match(source):
        raise RespondToModel("That is a cell of an agent's, which only the person runs.")
    # The code itself is asked about as a call of python, which this one makes.
    return [Action(ActionKind.OWN_TOOL_READING, "notebook_run_cell")]


@tool(assess=_assess_run)
async def notebook_run_cell(
    cell_id: str, version: str, *, ctx: ToolContext | None = None
) -> ToolOutput:
    """Run a code cell of the open notebook and show its outputs there; you get them, too.

    It runs now, in the person's kernel, as a call of python with the cell's text.

    Args:
        cell_id: the cell.
        version: the version that notebook_read showed.
    """
    document, ctx = _opened(ctx)
    source = document.read_as(cell_id, version)
    # Checked before the code runs: the cell must be able to show the outputs.
    step = uuid.uuid4().hex
    show = partial(document.request, ctx.turn_id, "show", cell=cell_id, expected=source, step=step)
    await show(outputs=[])
    _keep(ctx, cell_id, "code", source, source, step)
    output = await ctx.call("python", {"code": source, "where": "live"})
    if output.text.startswith("The person changed the code to:"):
        note = "What was run is not what stands in the cell, so the cell shows no outputs."
    else:
        try:
            await show(outputs=_outputs_of(output))
            note = f"[Cell {cell_id} shows this.]"
        except RespondToModel as error:
            note = f"[It ran, but the cell does not show it. {full_message(error)}]"
    # The outputs are shown in the cell, and in the call of python.
    details = {**output.details, "output": note}
    if isinstance(output.content, str):
        return ToolOutput(f"{output.content.rstrip()}\n{note}", output.success, details)
    first, *rest = output.content
    if isinstance(first, InputText):
        first = InputText(f"{first.text.rstrip()}\n{note}")
    return ToolOutput((first, *rest), output.success, details)


def _keep(
    ctx: ToolContext,
    cell: str,
    kind: str,
    before: str | None,
    after: str | None,
    step: str,
    **place: Any,
) -> None:
    """Record a change of a cell, so that a rewind can take it back."""
    fields = {"cell": cell, "cell_type": kind, "before": before, "after": after}
    ctx.emit(CellChanged, **fields, **place, step=step)


def _outputs_of(output: ToolOutput) -> list[Json]:
    """Convert a tool's output to notebook outputs: text and images, in their order.

    Nothing else is kept: HTML written by a model could press a button in the page.
    """
    content = output.content
    images = [] if isinstance(content, str) else [p for p in content if isinstance(p, InputImage)]
    text = str(output.details.get("output", output.text))
    pieces = _FIGURE.split(text)
    if len(pieces) != len(images) + 1:  # cut, or printed by the code itself
        pieces = [text, *[""] * len(images)]
    shown: list[Json] = []
    for piece, image in zip(pieces, [*images, None], strict=True):
        if piece.strip():
            name = "stdout" if output.success else "stderr"
            shown.append({"output_type": "stream", "name": name, "text": piece})
        if image is not None:
            mime, _, data = image.image_url.removeprefix("data:").partition(";base64,")
            bundle: dict[str, Json] = {mime: data, "text/plain": "[figure]"}
            shown.append({"output_type": "display_data", "data": bundle, "metadata": {}})
    return shown
