"""``%agent compact``: shortens the conversation that is sent, on demand."""

from agent_magics.app import Agent
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import HistoryCompacted, TurnAborted, TurnFailed, Warned
from agent_magics.protocol.ops import Compact, new_turn_id


def compact_history(notebook: NotebookAgents, agent: Agent) -> str:
    """Replace the conversation by a summary of it; your prompts stay.

    Args:
        notebook: a `kernel.notebook.NotebookAgents`.
        agent: the agent whose conversation it is.

    Raises:
        FatalError: it failed; the conversation is unchanged.
    """
    op = Compact(turn_id=new_turn_id())
    foreground = agent.foreground(host=notebook.host)
    events = foreground.wait_blocking(op, notebook.turn_config_of(agent))
    if isinstance(events[-1], TurnFailed):
        raise FatalError(events[-1].error)
    if isinstance(events[-1], TurnAborted):
        raise FatalError("Stopped before there was a summary; the conversation is as it was.")
    (done,) = (event for event in events if isinstance(event, HistoryCompacted))
    warnings = [event.message for event in events if isinstance(event, Warned)]
    outcome = (
        f"A summary stands for the conversation from here on: about {_rounded(done.tokens_before)} "
        f"tokens before, about {_rounded(done.tokens_after)} now."
    )
    return "\n\n".join([*warnings, outcome])


def _rounded(tokens: int) -> str:
    """Format an estimate of tokens with two significant digits."""
    step = 10 ** max(len(str(tokens)) - 2, 0)
    return f"{round(tokens / step) * step:,}"
