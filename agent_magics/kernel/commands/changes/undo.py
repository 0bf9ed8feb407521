"""``%agent undo`` and ``%agent redo``: takes back what the last turns changed in files, or
makes those changes again.
"""

from agent_magics.app import Agent
from agent_magics.file_history.journal import UndoResult
from agent_magics.files.paths import shown_path
from agent_magics.kernel.commands.changes.diff import publish_diff
from agent_magics.kernel.commands.conversations.rewinding import not_restored, redo_rewind
from agent_magics.kernel.commands.live_code import undo_variables
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError
from agent_magics.render.describe import one_line
from agent_magics.render.markdown import code_span
from agent_magics.text.brief import first_lines, first_of

_MOST_NAMED = 20


def _undo_turns(
    notebook: NotebookAgents,
    agent: Agent,
    turns: int = 1,
    *,
    force: bool = False,
    sessions: bool = False,
    by: str = "",
) -> str:
    """Restore the files that the last turns changed."""
    way = agent.undo(turns, force=force, sessions=sessions, sub_agent=by)
    what = f"Undone what {way.by} changed in" if way.by else "Undone"
    return _report(notebook, agent, way, what, forced=force)


def _undo_sub_agent(notebook: NotebookAgents, agent: Agent, name: str, **options: bool) -> str:
    """Restore the files that a sub-agent changed, in all turns."""
    authors = agent.session.conversation.files.journal_to_undo(agent.config.cwd).sub_agents
    if name not in authors:
        there = ", ".join(authors) or "none"
        raise FatalError(f"{UNDO.usage()} Sub-agents that changed files: {there}.")
    return _undo_turns(notebook, agent, by=name, **options)


def _redo(notebook: NotebookAgents, agent: Agent) -> str:
    """Redo the turn that ``%agent undo`` undid last, or all of ``%agent rewind``."""
    return redo_rewind(notebook, agent.name) or _report(
        notebook, agent, agent.redo(), "Done again", forced=False
    )


def _report(
    notebook: NotebookAgents, agent: Agent, way: UndoResult, word: str, *, forced: bool
) -> str:
    cwd = agent.config.cwd
    if way.obstacles and not forced:
        raise _conflict(notebook, agent, way)
    titles = first_of([code_span(one_line(turn.title)) for turn in way.turns], _MOST_NAMED)
    names = [code_span(shown_path(path, cwd)) for path in way.paths]
    lines = [f"{word}: {titles}", "", *(first_lines(names, _MOST_NAMED) or ["- no file"])]
    lines += not_restored({shown_path(e.change.path, cwd): e.reason for e in way.obstacles})
    lines += [f"- {each}" for each in way.left_alone(cwd, code_span)]
    return "\n".join(lines)


def _conflict(notebook: NotebookAgents, agent: Agent, way: UndoResult) -> FatalError:
    """Show the conflicting changes, and return the sentence with which the cell ends."""
    cwd = agent.config.cwd
    event = agent.session.conversation.files.conflict(cwd, way)
    if event.files:
        publish_diff(notebook, event, "In the way: as the agent left it, and as it is now")
    return FatalError(
        f"Nothing was changed, since something is in the way ({way.in_the_way(cwd)}). "
        "With --force, %agent undo leaves that alone and puts the rest back."
    )


UNDO = Command(
    "undo",
    {
        "[N] [--force] [--sessions]": _undo_turns,
        "--namespace": undo_variables,
        "SUB-AGENT [--force] [--sessions]": _undo_sub_agent,
    },
    note=(
        "; N is the number of turns, --force leaves alone what is in the way, --sessions restores "
        "also what background sessions may have written, --namespace restores variables, not files"
    ),
    text="Undo file changes of the last turn, ``N``, a sub-agent; ``--namespace``: variables.",
    of_agent=True,
)
REDO = Command("redo", {"": _redo}, of_agent=True)
