"""Builds the result of a run from its events."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_magics.engine.results.structured import OutputType
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import (
    Event,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallPending,
    TurnAborted,
    TurnCompleted,
    TurnDiffUpdated,
    TurnFailed,
)
from agent_magics.protocol.items import Usage, json_or, text_of
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import number_of


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """One finished tool call.

    Attributes:
        arguments: a dict where the model sent JSON, else its text.
        output: the text for the model; a text that it has read already reaches it as one line.
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
        text: the model's final answer; where a budget ended the run, its summary.
        error: one sentence when the run failed or was stopped, else None.
        calls: the finished tool calls, in the order they ended.
        usage: tokens over all requests of the run.
        cost: USD of all its requests, as the server reports it or by the list prices of
            `agent_magics.models.providers.catalog`; None where that is not known.
        budget: the budget that ended the run, such as "max_turns=3"; "" where none did.
        value: the answer as the requested type (`output=...`); None without one.
        events: all events of the run, in order.
    """

    status: str
    text: str = ""
    error: str | None = None
    calls: list[FinishedCall] = field(default_factory=list)
    usage: Usage = Usage()
    events: list[Event] = field(default_factory=list, repr=False)
    cost: float | None = None
    budget: str = ""
    value: Any = None

    @property
    def diff(self) -> str:
        """All changes to files in the run, as one unified diff; of a very long one, its start."""
        found = (each.diff for each in reversed(self.events) if isinstance(each, TurnDiffUpdated))
        return next(found, "")

    def __repr__(self) -> str:
        """Return plain text: a model's Markdown must not be rendered unseen."""
        calls = number_of(len(self.calls), "tool call")
        text = "\n\n".join(filter(None, (self.error, self.text)))
        return f"Run {self.status} ({calls})" + (f":\n{text}" if text else ".")


def summarise(events: Iterable[Event], output: OutputType | None = None) -> RunResult:
    """Build the result of a run from its events.

    Args:
        events: of one run, in order.
        output: the requested type of its answer.
    """
    events = list(events)
    arguments = {e.call_id: e.arguments for e in events if isinstance(e, ToolCallPending)}
    calls = [
        _finished(e, arguments.get(e.call_id, ""))
        for e in events
        if isinstance(e, (ToolCallCompleted, ToolCallFailed))
    ]
    end = events[-1] if events else None
    if isinstance(end, TurnCompleted):
        # The answer was validated on the engine's thread; events carry only its text.
        value = None if output is None or end.budget else output.read(end.text)
        return RunResult(
            "completed", end.text, None, calls, end.usage, events, end.cost, end.budget, value
        )
    if isinstance(end, TurnAborted):
        return RunResult("aborted", "", end.reason, calls, end.usage, events, end.cost)
    if isinstance(end, TurnFailed):
        return RunResult("failed", end.text, end.error, calls, end.usage, events, end.cost)
    return RunResult("failed", "", "the engine stopped", calls, Usage(), events)


def _finished(event: ToolCallCompleted | ToolCallFailed, arguments: str) -> FinishedCall:
    return FinishedCall(
        event.name,
        json_or(arguments, arguments),
        text_of(event.output),
        isinstance(event, ToolCallCompleted),
        event.duration,
        event.call_id,
        event.parent_call_id,
    )


def output_of(events: Sequence[object]) -> ToolOutput:
    """Return the output of a single call, from the events of its turn.

    Raises:
        FatalError: the turn failed.
    """
    for event in reversed(events):
        if isinstance(event, TurnFailed):
            raise FatalError(event.error)
        if isinstance(event, (ToolCallCompleted, ToolCallFailed)) and event.parent_call_id is None:
            success = isinstance(event, ToolCallCompleted)
            return ToolOutput(event.output, success, event.details)
    return ToolOutput("The call was stopped before it ended.", success=False)
