"""``%agent diff``: shows a turn's changes in files, side by side."""

import uuid
from collections.abc import Sequence
from typing import Any

from agent_magics.app import Agent
from agent_magics.engine.file_changes.turn import diff_event
from agent_magics.file_history.journal import ChangeJournal, TurnChanges
from agent_magics.file_history.workspace import memories_of
from agent_magics.kernel.cell.publishing import CellPublisher
from agent_magics.kernel.commands.words import table
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.brief import first_of, number_of
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import TurnDiffUpdated
from agent_magics.protocol.items import Json
from agent_magics.render.describe import one_line
from agent_magics.render.diffs.changes import changes_item, changes_markdown, changes_plain
from agent_magics.render.diffs.side_by_side import side_by_side
from agent_magics.render.markdown import code_span

_USAGE = (
    "%agent diff takes nothing (the last turn that changed files), a number that counts back "
    "(1 is the last), list, or all; and the name of an agent."
)


def show_diff(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Show what a turn changed in files: the last, ``N`` back, ``all``; ``list`` lists turns."""
    agent, words = chosen_agent(notebook, arguments)
    if len(words) > 1:
        raise FatalError(_USAGE)
    journal = agent.session.conversation.files.journal_to_undo(agent.config.cwd)
    turns = journal.turns
    if not turns:
        raise FatalError("No turn of this conversation changed files.")
    if words == ["list"]:
        return _listed(agent, journal, turns)
    shown = _chosen(turns, words[0] if words else "1")
    event = diff_event(journal, shown, agent.config.cwd)
    heading = one_line(shown[0].title) if len(shown) == 1 else f"{len(shown)} turns"
    publish_diff(notebook.shell, event, f"Changes of: {heading}", _left_out(agent))
    return ""


def chosen_agent(notebook: NotebookAgents, arguments: Sequence[str]) -> tuple[Agent, list[str]]:
    """Return the agent named in `arguments`, else the notebook's own, and the other arguments."""
    named = [word for word in arguments if word in notebook.agents]
    if len(named) > 1:
        raise FatalError(f"One agent at a time, please: {', '.join(named)}.")
    rest = [word for word in arguments if word not in named]
    return notebook.agent_named(named[0] if named else ""), rest


def _chosen(turns: Sequence[TurnChanges], word: str) -> list[TurnChanges]:
    if word == "all":
        return list(turns)
    if not word.isdecimal() or not int(word):
        raise FatalError(_USAGE)
    if int(word) > len(turns):
        raise FatalError(
            f"Only {number_of(len(turns), 'turn')} of this conversation changed files."
        )
    return [turns[int(word) - 1]]


def _listed(agent: Agent, journal: ChangeJournal, turns: Sequence[TurnChanges]) -> str:
    rows = []
    for number, turn in enumerate(turns, start=1):
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
    shell: Any, event: TurnDiffUpdated, heading: str, facts: Sequence[str] = ()
) -> None:
    """Show a diff in the running cell: as HTML, Markdown and text."""
    item: dict[str, Any] = changes_item(event)
    item["diff"] = event.diff
    item["notes"] = [*event.notes, *facts]
    above = [*event.runs, *event.notes, *facts]
    bundle: dict[str, Json] = {
        "text/html": side_by_side(event.diff, heading, [_summary(event), *above]),
        "text/markdown": changes_markdown(item),
        "text/plain": changes_plain(item),
    }
    CellPublisher(shell).publish(bundle, uuid.uuid4().hex)


def _summary(event: TurnDiffUpdated) -> str:
    return "; ".join(
        " ".join(filter(None, (file.path, _counts(file.added, file.removed), file.note)))
        for file in event.files
    )


def _counts(added: int | None, removed: int | None) -> str:
    return "" if added is None or removed is None else f"+{added} −{removed}"  # noqa: RUF001
