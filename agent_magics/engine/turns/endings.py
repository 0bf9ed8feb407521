"""Chooses the event that ends a turn which stopped by an error."""

import asyncio
import logging
import traceback
from collections.abc import Sequence
from typing import Any, TypeAlias

from agent_magics.engine.channels.redaction import redact_text
from agent_magics.engine.cost import Spending
from agent_magics.engine.results.structured import UnfitAnswer
from agent_magics.engine.turns.loop import Turn
from agent_magics.protocol.errors import FatalError, TurnAbort, error_text
from agent_magics.protocol.events import Event, TurnAborted, TurnFailed

_LOG = logging.getLogger("agent_magics")

# The class of the event that ends a turn, and its fields.
Ending: TypeAlias = tuple[type[Event], dict[str, Any]]


def ending_of(error: BaseException, agent: str, secrets: Sequence[str]) -> Ending:
    """Return the last event of a turn that ended by an error.

    Args:
        error: what the turn raised.
        agent: the agent's name, for the log.
        secrets: texts to take out of the log.
    """
    match error:
        case UnfitAnswer():
            return TurnFailed, {"error": str(error), "text": error.text}
        case FatalError():
            return TurnFailed, {"error": str(error)}
        case TurnAbort():
            return TurnAborted, {"reason": str(error)}
        case asyncio.CancelledError():
            return TurnAborted, {"reason": str(error.args[0]) if error.args else "interrupted"}
    # A bug of ours: the traceback for a report, one sentence for the person.
    trace = redact_text(secrets, "".join(traceback.format_exception(error)))
    _LOG.error("a turn of agent %s failed\n%s", agent, trace)
    bug = error_text(error)
    return TurnFailed, {"error": f"Internal error in agent-magics ({bug}); please report it."}


def spent(turn: Turn | None) -> dict[str, object]:
    """Return the fields that say what a turn has cost; None is one that could not begin."""
    spending = turn.model_caller.budget.spending if turn is not None else Spending()
    return {"usage": spending.usage, "cost": spending.cost}
