"""``%agent rewind``: restores conversation, files, cells and variables before a turn, if wanted."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from agent_magics.engine.past.rewind import Rewind, WayLost
from agent_magics.file_history.journal import UndoResult
from agent_magics.files.paths import shown_path
from agent_magics.kernel.commands.conversations.cells import NotebookCells
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.lab.cell_ways import ways_of
from agent_magics.kernel.lab.link import asker_of
from agent_magics.kernel.live.changes import RunChange
from agent_magics.kernel.notebook import NotebookAgents, WayForth
from agent_magics.kernel.questions.ways import stdin_allowed
from agent_magics.protocol.errors import FatalError
from agent_magics.render.describe import one_line
from agent_magics.render.markdown import code_span
from agent_magics.text.brief import first_lines, first_of

_PARTS = ("conversation", "files", "cells", "variables")
_LOOK_AGAIN = (
    "The person has gone back in this conversation: cells of the notebook may read otherwise than "
    "you know them. Read a cell again before you change it."
)
_LOST = "- Left alone: files that these turns changed and of which no copy is kept any more."
_NOT_MADE = "- Left alone: files of turns that can be made again no more, since others changed."
_MOST_NAMED = 20


def _rewind(
    notebook: NotebookAgents, turn: int | None = None, *, yes: bool = False, **left_out: bool
) -> str:
    """Rewind to before turn N (else the last): all parts but those left out by ``--no-files`` …"""
    parts = {part for part in _PARTS if f"no_{part}" not in left_out}
    agent = notebook.agent_named()
    way = agent.way_back(turn)
    changes = agent.session.conversation.cell_changes
    ways = ways_of(each for each in changes if each.turn_id in way.turns)
    cells = NotebookCells(notebook.document, asker_of(notebook.shell), ways)
    notebook.publish_text(_preview(notebook, way, cells, parts, agent.config.cwd))
    if not yes and not _is_wanted(notebook):
        return "Nothing was changed."
    way.go_back(conversation="conversation" in parts, files="files" in parts)
    lines = [f"Back to before turn {way.number}; `%agent redo` goes forth again.", ""]
    lines += [] if way.files is None else _of_files(way.files, agent.config.cwd)
    lines += [_LOST] if way.lost and "files" in parts else []
    forth = notebook.ways_back[agent.name] = WayForth(way)
    if ways and "cells" in parts:
        done, forth.cells = cells.restore()
        lines += done
    if ways:
        agent.session.conversation.tell(_LOOK_AGAIN)
    if "variables" in parts:
        live = notebook.live_kernel.changes
        left, forth.variables = live.put_back_turns(way.turns, notebook.shell.user_ns)
        lines += not_restored(left)
    return "\n".join(lines).rstrip()


def redo_rewind(notebook: NotebookAgents, name: str) -> str:
    """Redo the last rewind of an agent; return what was done, "" where there is none.

    Raises:
        FatalError: the conversation has gone on since, or the disk refused.
    """
    forth = notebook.ways_back.get(name)
    if forth is None or not forth.way.is_newest(notebook.agents[name].session.conversation):
        return ""
    try:
        done = forth.way.redo()  # after another error it is tried again
    except WayLost:  # what was undone of files can still be made again
        del notebook.ways_back[name]
        raise
    del notebook.ways_back[name]
    cwd = notebook.agents[name].config.cwd
    lines = [f"Forth again: turn {forth.way.number} and what came after it.", ""]
    lines += [line for way in done for line in _of_files(way, cwd)]
    lines += [_NOT_MADE] if forth.way.undone else []
    if forth.cells:
        asker = asker_of(notebook.shell)
        lines += NotebookCells(notebook.document, asker, forth.cells).restore()[0]
    namespace = notebook.shell.user_ns
    left = notebook.live_kernel.changes.put_forth(forth.variables, namespace)
    names = [name for name in _names(forth.variables) if name not in left]
    lines += [f"- Variables: {', '.join(map(code_span, names))}."] if names else []
    return "\n".join([*lines, *not_restored(left)]).rstrip()


def _is_wanted(notebook: NotebookAgents) -> bool:
    """Ask for confirmation.

    Raises:
        FatalError: no input is possible here.
    """
    if not stdin_allowed(notebook.shell):
        raise FatalError("Nobody can be asked here; %agent rewind --yes asks nothing.")
    return input("Go back? [y]es, [n]o: ").strip().lower() in ("y", "yes")


def _preview(
    notebook: NotebookAgents, way: Rewind, cells: NotebookCells, parts: set[str], cwd: Path
) -> str:
    prompts = first_of([code_span(one_line(prompt)) for prompt in way.prompts], _MOST_NAMED)
    lines = [f"Back to before turn {way.number}:", ""]
    if "conversation" in parts:
        lines.append(f"- Conversation: the model forgets {prompts or 'the turn'}.")
    if "files" in parts:
        lines += [*_of_files(way.preview(), cwd), *([_LOST] if way.lost else [])]
    if "cells" in parts:
        lines += cells.preview()
    if "variables" in parts:
        names = _names(notebook.live_kernel.changes.of_turns(way.turns))
        shown = first_of([*map(code_span, names)], _MOST_NAMED)
        lines.append(f"- Variables: {shown or 'none'}.")
    return "\n".join(lines)


def _names(changes: Iterable[RunChange]) -> list[str]:
    return list(dict.fromkeys(name for change in changes for name in change.was))


def _of_files(way: UndoResult | None, cwd: Path) -> list[str]:
    if way is None:
        return ["- Files: none."]
    names = first_of([code_span(shown_path(path, cwd)) for path in way.paths], _MOST_NAMED)
    obstacles = not_restored({shown_path(e.change.path, cwd): e.reason for e in way.obstacles})
    left = [f"- {each}" for each in way.left_alone(cwd, code_span)]
    return [f"- Files: {names or 'none'}.", *obstacles, *left]


def not_restored(reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each of the first names that were not restored, with the reason."""
    told = [f"Left alone: {code_span(name)}, since {why}." for name, why in reasons.items()]
    return first_lines(told, _MOST_NAMED)


REWIND = Command(
    "rewind",
    {f"[N] {' '.join(f'[--no-{part}]' for part in _PARTS)} [--yes]": _rewind},
    note="; it goes back to before turn N, the last if none, and --yes asks nothing",
)
