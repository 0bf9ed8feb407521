"""``%agent undo`` and ``%agent redo``: restores the files of the last turns or repeats a turn."""

from collections.abc import Sequence
from pathlib import Path

from agent_magics.app import Agent
from agent_magics.file_history.journal import UndoResult
from agent_magics.files.paths import shown_path
from agent_magics.kernel.commands.changes.diff import chosen_agent, publish_diff
from agent_magics.kernel.commands.conversations.rewinding import left_alone, redo_rewind
from agent_magics.kernel.commands.live_code import undo as undo_variables
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.brief import first_of
from agent_magics.protocol.errors import FatalError
from agent_magics.render.describe import one_line
from agent_magics.render.markdown import code_span

_USAGE = (
    "%agent undo takes a number of turns (1 if none), --force (leave alone what is in the way), "
    "--sessions (also what background sessions may have written), or --namespace alone, which puts "
    "variables back instead of files; a sub-agent's name, which undoes its changes alone; and the "
    "name of an agent."
)
_OPTIONS = ("--force", "--sessions")
_MOST_NAMED = 20


def undo(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Undo file changes of the last turn, of ``N``, of a sub-agent; ``--namespace``: variables."""
    if "--namespace" in arguments:
        return undo_variables(notebook, arguments)
    agent, words = chosen_agent(notebook, arguments)
    chosen = [word for word in words if word not in _OPTIONS]
    word = chosen[0] if chosen else "1"
    authors = agent.session.conversation.files.journal_to_undo(agent.config.cwd).sub_agents
    if len(chosen) > 1 or not (word in authors or (word.isdecimal() and int(word))):
        raise FatalError(f"{_USAGE} Sub-agents that changed files: {', '.join(authors) or 'none'}.")
    way = agent.undo(
        1 if word in authors else int(word),
        force="--force" in words,
        sessions="--sessions" in words,
        sub_agent=word if word in authors else "",
    )
    notebook.ways_back.pop(agent.name, None)  # this is what a redo takes back now
    what = f"Undone what {way.by} changed in" if way.by else "Undone"
    return _report(notebook, agent, way, what, forced="--force" in words)


def redo(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Redo the turn that ``%agent undo`` undid last, or all of ``%agent rewind``."""
    agent, words = chosen_agent(notebook, arguments)
    if words:
        raise FatalError("%agent redo takes nothing but the name of an agent.")
    return redo_rewind(notebook, agent.name) or _report(
        notebook, agent, agent.redo(), "Done again", forced=False
    )


def _report(
    notebook: NotebookAgents, agent: Agent, way: UndoResult, word: str, *, forced: bool
) -> str:
    cwd = agent.config.cwd
    if way.obstacles and not forced:
        raise _conflict(notebook, agent, way)
    titles = ", ".join(code_span(one_line(turn.title)) for turn in way.turns)
    lines = [f"{word}: {titles}.", ""]
    lines += [f"- {code_span(name)}" for name in _named(way.paths, cwd)] or ["- no file"]
    lines += left_alone({shown_path(e.change.path, cwd): e.reason for e in way.obstacles})
    if way.doubtful:
        names = ", ".join(map(code_span, _named(way.doubtful, cwd)))
        lines.append(f"- Left alone, since a session or you changed it: {names}.")
    if way.kept_folders:
        names = ", ".join(map(code_span, _named(way.kept_folders, cwd)))
        lines.append(f"- Folders that stay, since something is in them: {names}.")
    return "\n".join(lines)


def _conflict(notebook: NotebookAgents, agent: Agent, way: UndoResult) -> FatalError:
    """Show the conflicting changes, and return the sentence with which the cell ends."""
    cwd = agent.config.cwd
    event = agent.session.conversation.files.conflict(cwd, way)
    if event.files:
        publish_diff(notebook.shell, event, "In the way: as the agent left it, and as it is now")
    reasons = [f"{shown_path(each.change.path, cwd)}: {each.reason}" for each in way.obstacles]
    return FatalError(
        f"Nothing was changed, since something is in the way ({first_of(reasons, 5, '; ')}). "
        "With --force, %agent undo leaves that alone and puts the rest back."
    )


def _named(paths: Sequence[str], cwd: Path) -> list[str]:
    names = [shown_path(path, cwd) for path in paths[:_MOST_NAMED]]
    return [*names, *([f"and {len(paths) - _MOST_NAMED} more"] if len(paths) > _MOST_NAMED else [])]
