"""Tells whether a turn of ``--plan`` ended with a plan that the person wants to run."""

from agent_magics.engine.results.run import RunResult
from agent_magics.protocol.events import ToolCallCompleted
from agent_magics.tools.proposal import NAME, RUN


def is_to_run(result: RunResult) -> bool:
    """Return whether the last plan of a turn was answered with *Run it*."""
    answers = [
        event.details.get("plan")
        for event in result.events
        if isinstance(event, ToolCallCompleted) and event.name == NAME
    ]
    return result.status == "completed" and answers[-1:] == [RUN]
