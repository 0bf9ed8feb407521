"""``%agent rewind``: restores conversation, files and variables before a turn, if confirmed."""

from collections.abc import Sequence
from pathlib import Path

from agent_magics.engine.past.rewind import Rewind
from agent_magics.file_history.journal import UndoResult
from agent_magics.files.paths import shown_path
from agent_magics.kernel.cell.publishing import publish_text
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.questions.ladder import stdin_allowed
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import CALL_TYPES, LocalShellCall
from agent_magics.render.describe import one_line
from agent_magics.render.markdown import code_span

_LEFT_OUT = ("--no-conversation", "--no-files", "--no-variables")
_USAGE = (
    "%agent rewind takes the turn to go back to before, counted from 1 (the last if none), "
    "--no-conversation, --no-files, --no-variables, and --yes, which asks nothing."
)
_MOST_NAMED = 20


def rewind(notebook: NotebookAgents, arguments: Sequence[str]) -> None:
    """Rewind to before turn N (else the last): conversation, files, variables; ``--no-files`` …"""
    numbers = [word for word in arguments if word not in (*_LEFT_OUT, "--yes")]
    if len(numbers) > 1 or not all(number.isdecimal() for number in numbers):
        raise FatalError(_USAGE)
    parts = {word.removeprefix("--no-") for word in _LEFT_OUT if word not in arguments}
    agent = notebook.agent_named(notebook.settings.name)
    way = agent.way_back(int(numbers[0]) if numbers else None)
    publish_text(notebook.shell, _preview(notebook, way, parts, agent.config.cwd))
    if "--yes" not in arguments and not _is_wanted(notebook):
        publish_text(notebook.shell, "Nothing was changed.")
        return
    way.go_back(conversation="conversation" in parts, files="files" in parts)
    left = {}
    if "variables" in parts:
        changes = notebook.live_kernel.changes
        left = changes.put_back_turns(way.turns, notebook.shell.user_ns)
    notebook.ways_back[agent.name] = way
    publish_text(notebook.shell, _outcome(way, left, agent.config.cwd))


def redo_rewind(notebook: NotebookAgents, name: str) -> bool:
    """Redo the last rewind of an agent; return False where there is none.

    Raises:
        FatalError: the conversation has gone on since, or the disk refused.
    """
    way = notebook.ways_back.pop(name, None)
    if way is None:
        return False
    done = way.redo()
    cwd = notebook.agents[name].config.cwd
    lines = [f"Forth again: turn {way.number} and what came after it. Variables stay as they are."]
    lines += [f"- {code_span(_shown(path, cwd))}" for each in done for path in each.paths]
    lines += [
        f"- Left alone: {code_span(_shown(each.change.path, cwd))}, since {each.reason}."
        for way_of_turn in done
        for each in way_of_turn.obstacles
    ]
    publish_text(notebook.shell, "\n".join([lines[0], "", *lines[1:]]))
    return True


def _is_wanted(notebook: NotebookAgents) -> bool:
    """Ask for confirmation.

    Raises:
        FatalError: no input is possible here.
    """
    if not stdin_allowed(notebook.shell):
        raise FatalError("Nobody can be asked here; %agent rewind --yes asks nothing.")
    return input("Go back? [y]es, [n]o: ").strip().lower() in ("y", "yes")


def _preview(notebook: NotebookAgents, way: Rewind, parts: set[str], cwd: Path) -> str:
    prompts = ", ".join(code_span(one_line(prompt)) for prompt in way.prompts[:_MOST_NAMED])
    lines = [f"Back to before turn {way.number}:", ""]
    if "conversation" in parts:
        lines.append(f"- Conversation: the model forgets {prompts or 'the turn'}.")
    if "files" in parts:
        lines += _of_files(way.preview(), cwd)
    if "variables" in parts:
        changes = notebook.live_kernel.changes.of_turns(way.turns)
        names = dict.fromkeys(name for change in changes for name in change.was)
        shown = ", ".join(map(code_span, list(names)[:_MOST_NAMED]))
        lines.append(f"- Variables: {shown or 'none'}.")
    cells = _cell_calls(way)
    if cells:
        lines.append(f"- Cells of the notebook stay as they are ({cells} calls changed some).")
    return "\n".join(lines)


def _of_files(way: UndoResult | None, cwd: Path) -> list[str]:
    if way is None:
        return ["- Files: none."]
    names = ", ".join(code_span(_shown(path, cwd)) for path in way.paths[:_MOST_NAMED])
    lines = [f"- Files: {names or 'none'}."]
    lines += [
        f"- Left alone: {code_span(_shown(each.change.path, cwd))}, since {each.reason}."
        for each in way.obstacles[:_MOST_NAMED]
    ]
    doubtful = ", ".join(code_span(_shown(path, cwd)) for path in way.doubtful[:_MOST_NAMED])
    return [*lines, *([f"- Left alone, perhaps yours: {doubtful}."] if doubtful else [])]


def _cell_calls(way: Rewind) -> int:
    """Return how many calls changed cells, which only JupyterLab's own undo restores."""
    calls = [item for item in way.items if isinstance(item, CALL_TYPES)]
    names = [call.name for call in calls if not isinstance(call, LocalShellCall)]
    return sum(name.startswith("notebook_") and name != "notebook_read" for name in names)


def _outcome(way: Rewind, left: dict[str, str], cwd: Path) -> str:
    lines = [f"Back to before turn {way.number}; `%agent redo` goes forth again.", ""]
    if way.files is not None:
        lines += _of_files(way.files, cwd)
    lines += [f"- Left alone: {code_span(name)}, since {why}." for name, why in left.items()]
    return "\n".join(lines).rstrip()


def _shown(path: str, cwd: Path) -> str:
    return shown_path(Path(path), cwd)
