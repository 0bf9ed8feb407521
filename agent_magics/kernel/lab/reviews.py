"""Answers JupyterLab's pages that show what a cell's turns changed in files: keep, revert, undo.

Nothing of it is saved: a page asks for each block of changes that it draws, by its place in the
cell, so a kernel that did not run the cell has no answer and the page shows no buttons.
"""

from pathlib import Path

from agent_magics.app import Agent
from agent_magics.engine.file_changes.review import TurnReview
from agent_magics.file_history.journal import UndoResult
from agent_magics.kernel.lab.link import Data, LabLink
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.items import Json

# Characters of all diffs, and the changes, that a page is sent.
_MOST_SENT, _MOST_CHANGES = 400_000, 300


def answer_review(lab: LabLink, question: Data) -> dict[str, Json]:
    """Do what a page asks about the changes of a turn, and return them with their states.

    Args:
        lab: knows which turns have changed files in which cells.
        question: `cell`, `place` (which block of changes in it), and `act`: "look", "keep" or
            "revert" with the `number` of a change, or "undo" for all of them.

    Returns:
        `changes` (path, diff, state), `more` (how many are not among them), `can_undo`, `undone`,
        and `said`: why something was not done. Nothing where the turn is not known.
    """
    turns = lab.changing.get(str(question.get("cell")), [])
    place = question.get("place")
    if not isinstance(place, int) or not 0 <= place < len(turns):
        return {}
    agent, turn_id = turns[place]
    review = agent.session.conversation.review(agent.config.cwd, turn_id)
    if review is None:
        return {}
    try:
        said = _act(agent, review, question)
    except FatalError as error:
        said = short_message(error)
    return {**_described(review), "said": said}


def _act(agent: Agent, review: TurnReview, question: Data) -> str:
    match question:
        case {"act": "keep", "number": int(number)}:
            review.keep(number)
        case {"act": "revert", "number": int(number)}:
            return review.revert(number)
        case {"act": "undo"} if review.is_last:
            return _undone(agent.undo(), agent.config.cwd)
    return ""


def _undone(way: UndoResult, cwd: Path) -> str:
    """Return what an undo has left alone, and why; "" for nothing."""
    if way.obstacles:
        return (
            f"Nothing was undone, since something is in the way ({way.in_the_way(cwd)}). "
            "%agent undo shows how; --force leaves that alone and undoes the rest."
        )
    return " ".join(way.left_alone(cwd))


def _described(review: TurnReview) -> dict[str, Json]:
    sent: list[Json] = []
    left = _MOST_SENT
    for change in review.changes[:_MOST_CHANGES]:
        left -= len(change.diff)
        if left < 0:
            break
        sent.append({"path": change.path, "diff": change.diff, "state": change.state})
    return {
        "changes": sent,
        "more": len(review.changes) - len(sent),
        "can_undo": review.is_last,
        "undone": review.is_undone,
    }
