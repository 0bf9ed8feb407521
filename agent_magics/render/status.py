"""Folds events into a status line: a turn's present activity, its start, and the usage so far.

It is pure, like ``view``, but for its clock: the computer's may be set while a turn runs.
"""

import time
from collections.abc import Callable

from agent_magics.protocol import events
from agent_magics.protocol.items import Usage
from agent_magics.render.describe import describe_call
from agent_magics.render.visible import show_shortened

WAITS = "Waits for the model"
LONGEST = 160  # characters: the line of a call is whole


class TurnStatus:
    """The status line of one turn, which begins with it.

    Args:
        clock: gives the time in seconds, and never goes back.

    Attributes:
        doing: the present activity, in a few words.
        usage, cost: of the requests so far; None where the cost is not known.
        queued: the waiting prompts.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._since = clock()
        self.doing = WAITS
        self.usage = Usage()
        self.cost: float | None = None
        self.queued: tuple[events.QueuedPrompt, ...] = ()
        self._model = WAITS  # what the model does, where nothing else is going on
        self._calls: dict[str, str] = {}
        self._running: dict[str, float] = {}
        self._questions: dict[str, str] = {}

    @property
    def questions(self) -> int:
        """The number of questions that wait for the person."""
        return len(self._questions)

    @property
    def phase(self) -> str:
        """The present activity without the numbers that grow."""
        return _phase(self.doing)

    @property
    def seconds(self) -> float:
        """The duration of the turn so far."""
        return self._clock() - self._began

    @property
    def phase_seconds(self) -> float:
        """The duration of the present activity so far."""
        return self._clock() - self._since

    @property
    def call_seconds(self) -> float | None:
        """The duration so far of the call that has run for the longest, if any runs."""
        return self._clock() - min(self._running.values()) if self._running else None

    def apply(self, event: events.Event) -> None:
        """Apply an event."""
        match event:
            case events.TokensCounted():
                self.usage, self.cost, self._model = event.turn, event.cost, WAITS
            case events.PromptsQueued(prompts=prompts):
                self.queued = prompts
            case events.ToolCallEvent():
                self._follow_call(event)
            case events.MainThreadWork():
                pass  # it waits for no person
            case events.Question(question_id=which, call_id=call_id):
                asker = call_id.rpartition("/")[0]  # of a sub-agent, whose calls are not seen here
                words = self._calls.get(call_id, asker)
                self._questions[which] = words.removeprefix("request_user_input: ")  # asks itself
            case events.QuestionResolved(question_id=which):
                self._questions.pop(which, None)
            case _:
                self._model = _of_model(event) or self._model
        doing = self._now()
        if _phase(doing) != _phase(self.doing):
            self._since = self._clock()
        self.doing = doing

    def _follow_call(self, event: events.ToolCallEvent) -> None:
        if isinstance(event, events.ToolCallPending):
            title = describe_call(event.arguments)
            self._calls[event.call_id] = ": ".join(filter(None, (event.name, title)))
            self._model = WAITS
        elif isinstance(event, events.ToolCallRunning):
            self._running[event.call_id] = self._clock()
        elif isinstance(event, (events.ToolCallCompleted, events.ToolCallFailed)):
            self._calls.pop(event.call_id, None)
            self._running.pop(event.call_id, None)

    def _now(self) -> str:
        if self._questions:
            first, *others = self._questions.values()
            more = f", and {len(others)} more answers" if others else ""
            return show_shortened(f"Waits for your answer: {first}{more}", LONGEST)
        if self._calls:
            first, *others = self._calls.values()
            more = f", and {len(others)} more" if others else ""
            return show_shortened(f"Runs {first}", LONGEST) + more
        return self._model


def _of_model(event: events.Event) -> str:
    """Return the model's activity that an event shows, "" for none."""
    match event:
        case events.ReasoningDelta():
            return "The model thinks"
        case events.TextDelta():
            return "The model answers"
        case events.ToolCallArriving(name=name, size=size, file=file):
            words = f"The model writes {name or 'a call'} ({_kilobytes(size)})"
            return show_shortened(f"{words}: {file}" if file else words, LONGEST)
        case events.ModelRetry():
            return "Waits to ask the model once more"
    return ""


def _kilobytes(size: int) -> str:
    return f"{size} B" if size < 1000 else f"{size / 1000:.1f} kB"


def _phase(doing: str) -> str:
    """Return the part of an activity that stays the same while its numbers grow."""
    return doing.partition(" (")[0] if doing.startswith("The model writes") else doing
