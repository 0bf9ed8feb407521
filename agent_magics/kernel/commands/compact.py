"""``%agent compact``: what is sent of a conversation made shorter by hand."""

from typing import Any

from agent_magics.app import Agent, new_turn_id
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import HistoryCompacted, TurnAborted, TurnFailed, Warned
from agent_magics.protocol.ops import Compact


def compact_history(notebook: Any, agent: Agent) -> str:
    """Have the model write a summary, wait for it, and say what came of it.

    Args:
        notebook: a `kernel.notebook.NotebookAgents`.
        agent: whose conversation.

    Raises:
        FatalError: it did not work; the conversation is as it was.
    """
    op = Compact(turn_id=new_turn_id())
    foreground = agent.foreground(host=notebook.host)
    events = foreground.wait_blocking(op, notebook.setup_of(agent))
    if isinstance(events[-1], TurnFailed):
        raise FatalError(events[-1].error)
    if isinstance(events[-1], TurnAborted):
        raise FatalError("Stopped before there was a summary; the conversation is as it was.")
    (done,) = (event for event in events if isinstance(event, HistoryCompacted))
    warnings = [event.message for event in events if isinstance(event, Warned)]
    said = (
        f"A summary stands for the conversation from here on: about {_rounded(done.tokens_before)} "
        f"tokens before, about {_rounded(done.tokens_after)} now."
    )
    return "\n\n".join([*warnings, said])


def _rounded(tokens: int) -> str:
    """Two digits: the rest is a guess."""
    step = 10 ** max(len(str(tokens)) - 2, 0)
    return f"{round(tokens / step) * step:,}"
