"""``%agent diff``: shows a turn's changes in files, side by side."""

import uuid
from collections.abc import Sequence
from typing import Any

from agent_magics.app import Agent
from agent_magics.engine.channels.redaction import redact
from agent_magics.engine.file_changes.turn import diff_event
from agent_magics.file_history.journal import ChangeJournal, TurnChanges
from agent_magics.file_history.workspace import memories_of
from agent_magics.kernel.cell.publishing import CellPublisher
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.events import TurnDiffUpdated
from agent_magics.protocol.items import Json
from agent_magics.render.describe import one_line
from agent_magics.render.diffs.changes import (
    changes_item,
    changes_markdown,
    changes_plain,
    counts_of,
)
from agent_magics.render.diffs.side_by_side import side_by_side
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.text.brief import first_of


def _show(notebook: NotebookAgents, agent: Agent, number: int = 1) -> None:
    """Show what a turn changed in files, counted back from the last."""
    journal = _journal(agent)
    _publish(notebook, agent, journal, journal.latest(number)[-1:])


def _show_all(notebook: NotebookAgents, agent: Agent) -> None:
    """Show what all turns changed in files."""
    journal = _journal(agent)
    _publish(notebook, agent, journal, journal.latest())


def _journal(agent: Agent) -> ChangeJournal:
    return agent.session.conversation.files.journal_to_undo(agent.config.cwd)


def _publish(
    notebook: NotebookAgents, agent: Agent, journal: ChangeJournal, shown: Sequence[TurnChanges]
) -> None:
    event = diff_event(journal, shown, agent.config.cwd)
    heading = one_line(shown[0].title) if len(shown) == 1 else f"{len(shown)} turns"
    publish_diff(notebook, event, f"Changes of: {heading}", _left_out(agent))


def _list(_notebook: NotebookAgents, agent: Agent) -> str:
    """List the turns that changed files."""
    journal = _journal(agent)
    rows = []
    for number, turn in enumerate(journal.latest(), start=1):
        event = diff_event(journal, [turn], agent.config.cwd)
        names = first_of([code_span(file.path) for file in event.files], 5)
        rows.append((str(number), code_span(one_line(turn.title)), names))
    return table(("", "Turn", "Files"), rows)


def _left_out(agent: Agent) -> list[str]:
    """List the parts of the workspace whose changes are not tracked."""
    left_out = [folder for memory in memories_of(agent.config.roots) for folder in memory.left_out]
    # Every notebook has Jupyter's own checkpoints beside it, which are not worth a note.
    folders = [folder for folder in left_out if not folder.endswith(".ipynb_checkpoints/")]
    if not folders:
        return []
    return [f"What commands do in {first_of(folders, 5)} is not looked at."]


def publish_diff(
    notebook: NotebookAgents, event: TurnDiffUpdated, heading: str, facts: Sequence[str] = ()
) -> None:
    """Show a diff in the running cell, without keys: as HTML, Markdown and text."""
    event, heading = redact(notebook.secrets, (event, heading))
    item: dict[str, Any] = changes_item(event, whole=True)
    item["notes"] += facts
    files = "; ".join(f"{file['path']} {counts_of(file)}" for file in item["files"])
    above = [files, *item["runs"], *item["notes"]]
    bundle: dict[str, Json] = {
        "text/html": side_by_side(event.diff, heading, above),
        "text/markdown": changes_markdown(item),
        "text/plain": changes_plain(item),
    }
    CellPublisher(notebook.shell).publish(bundle, uuid.uuid4().hex)


DIFF = Command(
    "diff",
    {"[N]": _show, "all": _show_all, "list": _list},
    note="; N counts the turns that changed files back, and 1 is the last",
    text="Show what a turn changed in files: the last, ``N`` back, ``all``; ``list`` lists turns.",
    of_agent=True,
)
