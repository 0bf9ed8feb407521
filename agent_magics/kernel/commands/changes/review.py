"""``%agent review``: lists the changes of the last turn; keeps or reverts one by its number."""

from collections.abc import Sequence

from agent_magics.engine.file_changes.review import ReviewedChange, TurnReview
from agent_magics.kernel.cell.publishing import publish_text
from agent_magics.kernel.commands.changes.diff import chosen_agent
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span, fenced

_USAGE = (
    "%agent review lists the changes of the last turn; %agent review revert 2 3 reverts the second "
    "and the third, %agent review keep all marks all as seen."
)
_MOST_SHOWN = 50_000  # characters


def review(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Review the last turn's changes of files: a list; ``revert N``, ``keep N`` or ``keep all``."""
    agent, words = chosen_agent(notebook, arguments)
    turn = agent.review()
    if not words:
        return _listed(turn)
    act, *names = words
    if act not in ("keep", "revert") or not names:
        raise FatalError(_USAGE)
    numbers = _numbers(turn, names)
    reasons = []
    for number in numbers:
        if act == "keep":
            turn.keep(number)
        elif why := turn.revert(number):
            reasons.append(f"{number}: {why}")
    text = "\n".join(_line(number, turn.changes[number - 1]) for number in numbers)
    if not reasons:
        return text
    publish_text(notebook.shell, text)
    raise FatalError(" ".join(reasons))


def _numbers(turn: TurnReview, names: Sequence[str]) -> list[int]:
    if names == ["all"]:
        return [n for n, change in enumerate(turn.changes, 1) if change.state == "open"]
    numbers = [int(name) for name in names if name.isdecimal()]
    if len(numbers) < len(names) or not all(1 <= n <= len(turn.changes) for n in numbers):
        raise FatalError(f"{_USAGE} The last turn has {len(turn.changes)} of them.")
    return numbers


def _listed(turn: TurnReview) -> str:
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
