"""Events on their way out: stamped when they happen, recorded and then shown a batch at a time.

A batch is what happens in one step of the engine's loop. It costs one write and one wake-up of
the waiting thread, however many events it holds.
"""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_magics.engine.rollout import Rollout
from agent_magics.engine.secrets import EventRedactor, Unstamped
from agent_magics.engine.thread import EngineThread
from agent_magics.protocol.events import (
    TURN_ENDS,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    Warned,
)

Listener = Callable[[Event], None]


@dataclass(slots=True)
class _Turn:
    """Who hears of a turn, and what is taken out of its events.

    Attributes:
        after: hears what comes after the turn's end: of sessions that it started.
        redactor: None where there is nothing to take out.
        sessions: those that are open.
    """

    listener: Listener
    after: Listener | None
    redactor: EventRedactor | None
    sessions: set[str] = field(default_factory=set)
    ended: bool = False


class Outbox:
    """The way out of one session.

    Args:
        agent: the name that stands on every event.
        rollout: where events are recorded before they are shown; None records nothing.
    """

    def __init__(self, engine: EngineThread, agent: str, rollout: Rollout | None) -> None:
        self._engine = engine
        self._agent = agent
        self._rollout = rollout
        self._turns: dict[str, _Turn] = {}
        self._pending: list[Event] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def listen(
        self,
        turn_id: str,
        listener: Listener,
        secrets: Sequence[str] = (),
        after: Listener | None = None,
    ) -> None:
        """Show the events of a turn to `listener`, which is called on the engine's thread.

        Args:
            turn_id: the turn.
            listener: called with each event, in order, up to the one that ends the turn.
            secrets: texts that are taken out of the turn's events.
            after: called with those that come later: sessions may outlive their turn.
        """
        redactor = EventRedactor(secrets) if secrets else None
        self._turns[turn_id] = _Turn(listener, after, redactor)

    def emit(self, turn_id: str, kind: type[Event], **fields: Any) -> None:
        """Stamp an event; it is recorded and shown at the loop's next step. From any thread."""
        turn = self._turns.get(turn_id)
        with self._lock:
            is_first = not self._pending
            if turn is None or turn.redactor is None:
                self._stamp(turn_id, (kind, fields))
            else:
                for event in turn.redactor.clean(kind, fields):
                    self._stamp(turn_id, event)
            wakes = is_first and self._pending
        if wakes:
            self._engine.post(self.flush)

    def _stamp(self, turn_id: str, event: Unstamped) -> None:
        kind, fields = event
        self._pending.append(
            kind(
                seq=next(self._numbers),
                at=time.time(),
                turn_id=turn_id,
                agent=self._agent,
                **fields,
            )
        )

    def flush(self) -> None:
        """Record what has happened, then show it; on the engine's thread."""
        with self._lock:
            events, self._pending = self._pending, []
        if not events:
            return
        problem = self._record(events)
        for event in events:
            self._show(event)
        if problem is not None:
            message = f"This session is not recorded: {problem}."
            self.emit(events[-1].turn_id, Warned, message=message)

    def _show(self, event: Event) -> None:
        turn = self._turns.get(event.turn_id)
        if turn is None:
            return
        if isinstance(event, ExecCommandBegin) and event.session_id:
            turn.sessions.add(event.session_id)
        elif isinstance(event, ExecCommandEnd):
            turn.sessions.discard(event.session_id)
        listener = turn.after if turn.ended else turn.listener
        turn.ended |= isinstance(event, TURN_ENDS)
        if turn.ended and not turn.sessions:
            del self._turns[event.turn_id]
        if listener is not None:
            listener(event)

    def _record(self, events: list[Event]) -> Exception | None:
        if self._rollout is None:
            return None
        try:
            self._rollout.write(events)
        except Exception as problem:
            # A read-only or full disk, or details that have no JSON form, must not end the run, nor
            # keep the events from whoever waits for them; it is said once.
            self._rollout = None
            return problem
        return None

    def close(self) -> None:
        """Give the record's file back; on the engine's thread."""
        self.flush()
        if self._rollout is not None:
            self._rollout.close()
            self._rollout = None  # what comes after the end would open it anew
