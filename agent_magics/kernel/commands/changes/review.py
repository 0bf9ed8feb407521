"""``%agent review``: lists the changes of the last turn; keeps or reverts one by its number."""

from agent_magics.app import Agent
from agent_magics.engine.file_changes.review import ReviewedChange
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span, fenced
from agent_magics.text.brief import number_of

_MOST_SHOWN = 50_000  # characters


def _change(notebook: NotebookAgents, agent: Agent, act: str, *numbers: int) -> str:
    """Keep or revert changes by their numbers."""
    turn = agent.review()
    if max(numbers) > len(turn.changes):
        there = number_of(len(turn.changes), "change")
        raise FatalError(f"The last turn has {there}; %agent review shows them.")
    reasons = []
    for number in numbers:
        if act == "keep":
            turn.keep(number)
        elif why := turn.revert(number):
            reasons.append(f"{number}: {why}")
    text = "\n".join(_line(number, turn.changes[number - 1]) for number in numbers)
    if not reasons:
        return text
    notebook.publish_text(text)
    raise FatalError(" ".join(reasons))


def _change_all(notebook: NotebookAgents, agent: Agent, act: str) -> str:
    """Keep or revert all open changes."""
    opened = [n for n, each in enumerate(agent.review().changes, 1) if each.state == "open"]
    return _change(notebook, agent, act, *opened) if opened else ""


def _list(_notebook: NotebookAgents, agent: Agent) -> str:
    """List the changes of the last turn that changed files."""
    turn = agent.review()
    if not turn.changes:
        return "The last turn that changed files left none to review one by one."
    parts: list[str] = []
    room = _MOST_SHOWN
    for number, change in enumerate(turn.changes, 1):
        room -= len(change.diff)
        parts += [_line(number, change), fenced(change.diff, "diff") if room >= 0 else "…"]
    return "\n\n".join(parts)


def _line(number: int, change: ReviewedChange) -> str:
    return f"{number}. {code_span(change.path)} {change.state}"


REVIEW = Command(
    "review",
    {"": _list, "keep|revert all": _change_all, "keep|revert N ...": _change},
    text="Review the last turn's changes of files: ``revert N``, ``keep N``, ``keep all``.",
    of_agent=True,
)
