"""What a run gives back to the program that waited for it: a fold over its events."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from agent_magics.protocol.events import (
    Event,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
)
from agent_magics.protocol.items import Usage, text_of


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """One finished tool call.

    Attributes:
        arguments: a dict where the model sent JSON, else its text.
        output: the text the model read.
        duration: seconds.
    """

    name: str
    arguments: Any
    output: str
    success: bool
    duration: float
    call_id: str = ""
    parent_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of one run.

    Attributes:
        status: "completed", "aborted" or "failed".
        text: the model's final answer.
        error: one sentence when the run failed or was stopped, else None.
        calls: the finished tool calls, in the order they ended.
        usage: tokens over all requests of the run.
        events: everything that happened, in order.
    """

    status: str
    text: str = ""
    error: str | None = None
    calls: list[FinishedCall] = field(default_factory=list)
    usage: Usage = Usage()
    events: list[Event] = field(default_factory=list, repr=False)

    def __repr__(self) -> str:
        """Say in plain text how it ended: a model's Markdown must not be rendered unseen."""
        count = len(self.calls)
        calls = f"{count} tool call{'' if count == 1 else 's'}"
        words = "\n\n".join(filter(None, (self.error, self.text)))
        return f"Run {self.status} ({calls})" + (f":\n{words}" if words else ".")


def summarise(events: Iterable[Event]) -> RunResult:
    """Fold the events of a run into its result."""
    events = list(events)
    arguments = {e.call_id: e.arguments for e in events if isinstance(e, ToolCallPending)}
    calls = [
        _finished(e, arguments.get(e.call_id, ""))
        for e in events
        if isinstance(e, (ToolCallCompleted, ToolCallFailed))
    ]
    end = events[-1] if events else None
    if isinstance(end, TurnCompleted):
        return RunResult("completed", end.text, None, calls, end.usage, events)
    if isinstance(end, TurnAborted):
        return RunResult("aborted", "", end.reason, calls, end.usage, events)
    error = end.error if isinstance(end, TurnFailed) else "the engine stopped"
    usage = end.usage if isinstance(end, TurnFailed) else Usage()
    return RunResult("failed", "", error, calls, usage, events)


def _finished(event: ToolCallCompleted | ToolCallFailed, arguments: str) -> FinishedCall:
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):  # no JSON, or nested a hundred thousand times
        parsed = arguments
    return FinishedCall(
        event.name,
        parsed,
        text_of(event.output),
        isinstance(event, ToolCallCompleted),
        event.duration,
        event.call_id,
        event.parent_call_id,
    )
