"""Sends events: stamped when they happen, then recorded and shown in batches.

A batch holds the events of one step of the engine's loop. It costs one write and one wake-up of the
waiting thread, however many events it holds.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent_magics.engine.channels.redaction import EventRedactor, Unstamped, redact, redact_text
from agent_magics.engine.channels.rollout import Rollout
from agent_magics.engine.thread import EngineThread
from agent_magics.protocol.errors import clause
from agent_magics.protocol.events import (
    TURN_ENDS,
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    SubAgentChanged,
    Warned,
)
from agent_magics.protocol.records import Entry, HistoryShortened, ItemAdded
from agent_magics.text.secrets import Secrets

_LOG = logging.getLogger("agent_magics")

Listener = Callable[[Event], None]


@dataclass(slots=True)
class _TurnListeners:
    """The listeners of a turn, and the redactor of its events.

    Attributes:
        after: gets events after the turn's end: those of sessions that it started, and what their
            end brings to light.
        sessions: the open sessions, and the sub-agents at work.
    """

    listener: Listener
    after: Listener | None
    redactor: EventRedactor
    sessions: set[str] = field(default_factory=set)
    ended: bool = False


class Outbox:
    """Stamps, redacts, records and delivers the events of one session.

    Args:
        agent: the agent's name, which stands on every event.
        rollout: records events before they are shown; None records nothing.

    Attributes:
        secrets: those of all turns, the longest first, since one may begin another.
    """

    def __init__(self, engine: EngineThread, agent: str, rollout: Rollout | None) -> None:
        self._engine = engine
        self._agent = agent
        self._rollout = rollout
        self._is_recorded = True
        self._problem: Exception | None = None  # why recording failed, until it is reported
        self._turns: dict[str, _TurnListeners] = {}
        self._earlier_turns = set[str]()  # of other conversations: their events are shown alone
        self.secrets = Secrets()
        self._pending: list[Event | Entry] = []
        self._unshown = deque[Event]()  # recorded, and not shown yet
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._recording = threading.RLock()  # taken first, where both are

    def record_in(self, rollout: Rollout | None, last: int = 0) -> None:
        """Replace the record, after all is written; `last` is the new one's last event's number."""
        with self._recording, self._lock:
            self.record()
            before, self._rollout = self._rollout, rollout
            self._is_recorded = True
            self._earlier_turns.update(self._turns)
            self._numbers = itertools.count(last + 1)
        if before is not None:
            before.close()

    def begin_record(self) -> None:
        """Create the record's file now, with all that has happened; see `Rollout.begin`."""
        if self._rollout is not None:
            self._rollout.begin()
            self.record()

    def sync(self) -> None:
        """Flush the record to the disk (fsync); not on the engine's thread."""
        if self._rollout is not None:
            self._rollout.sync()

    def listen(
        self,
        turn_id: str,
        listener: Listener,
        secrets: tuple[str, ...] = (),
        after: Listener | None = None,
    ) -> None:
        """Deliver the events of a turn to `listener`, which is called on the engine's thread.

        From any thread.

        Args:
            turn_id: the turn.
            listener: called with each event, in order, up to the one that ends the turn.
            secrets: texts that are redacted in the turn's events.
            after: called with later events, up to the next turn, or as long as a session of the
                turn is open.
        """
        listeners = _TurnListeners(listener, after, EventRedactor(secrets))
        with self._lock:
            over = [each for each, turn in self._turns.items() if turn.ended and not turn.sessions]
            for each in over:
                del self._turns[each]
            self._turns[turn_id] = listeners
            self._add_secrets(secrets)

    def hide(self, secrets: Iterable[str]) -> None:
        """Redact more texts in all events and entries from now on; from any thread."""
        with self._lock:
            self._add_secrets(secrets)
            for turn in self._turns.values():
                turn.redactor.secrets = self.secrets

    def _add_secrets(self, secrets: Iterable[str]) -> None:
        self.secrets = Secrets(sorted({*self.secrets, *secrets}, key=len, reverse=True))

    def redacted(self, text: str) -> str:
        """Return a text without the secrets of all turns so far."""
        return redact_text(self.secrets, text)

    def emit(self, turn_id: str, kind: type[Event], **fields: Any) -> None:
        """Stamp an event; it is recorded and shown at the loop's next step. From any thread."""
        if self._add(turn_id, kind, fields):
            self._engine.post(self.flush)

    def emit_now(self, turn_id: str, kind: type[Event], **fields: Any) -> None:
        """Stamp an event; record and show it, after those before it. On the engine's thread."""
        self._add(turn_id, kind, fields)
        self.flush()

    def _add(self, turn_id: str, kind: type[Event], fields: Mapping[str, Any]) -> bool:
        """Stamp an event and keep it for the next flush; return whether it is the first there."""
        turn = self._turns.get(turn_id)
        with self._lock:
            is_first = not self._pending
            if turn is not None and turn.redactor.secrets:
                for event in turn.redactor.clean(kind, fields):
                    self._stamp(turn_id, event)
            else:  # also of what code of a turn does after its end
                cleaned = redact(self.secrets, fields) if self.secrets else fields
                self._stamp(turn_id, (kind, cleaned))
            return is_first and bool(self._pending)

    def keep(self, entry: Entry) -> None:
        """Record an entry in order with the events; from any thread.

        The secrets of all turns so far are redacted: an entry may be made outside a turn.
        """
        if self._rollout is None:
            return
        cleaned = redact(self.secrets, entry) if self.secrets else entry
        if cleaned is not entry and isinstance(cleaned, ItemAdded | HistoryShortened):
            cleaned = replace(cleaned, redacted=True)
        with self._lock:
            is_first = not self._pending
            self._pending.append(cleaned)
        if is_first:
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
        """Record and then show the pending events; on the engine's thread."""
        self.record()
        event = None
        while self._unshown:
            event = self._unshown.popleft()
            self._show(event)
        if self._problem is not None and event is not None:
            problem, self._problem = clause(self._problem), None
            message = f"This session is not recorded: {problem}. It will be when that is mended."
            self.emit(event.turn_id, Warned, message=message)

    def _show(self, event: Event) -> None:
        turn, listener = self._turns.get(event.turn_id), None
        if turn is not None:
            if isinstance(event, ExecCommandBegin) and event.session_id:
                turn.sessions.add(event.session_id)
            elif isinstance(event, ExecCommandEnd):
                turn.sessions.discard(event.session_id)
            elif isinstance(event, SubAgentChanged):
                follow = turn.sessions.discard if event.is_over else turn.sessions.add
                follow(event.sub_agent)
            listener = turn.after if turn.ended else turn.listener
            turn.ended |= isinstance(event, TURN_ENDS)
        if listener is not None:
            listener(event)
        elif isinstance(event, Warned) and event.turn_id:
            _LOG.warning("%s", event.message)  # of a turn that is over: nobody else says it

    def record(self) -> None:
        """Record what is pending, from any thread; the engine shows the events at its next step."""
        with self._recording:
            with self._lock:
                happened, self._pending = self._pending, []
            earlier = self._earlier_turns
            self._write([each for each in happened if getattr(each, "turn_id", "") not in earlier])
            self._unshown.extend(each for each in happened if isinstance(each, Event))

    def _write(self, happened: Sequence[Event | Entry]) -> None:
        """Write into the record; where that fails, a warning follows the next events."""
        if self._rollout is None or not happened:
            return
        try:
            self._is_recorded |= self._rollout.write(happened)
        except Exception as problem:
            # A read-only or full disk, or details that have no JSON form, must not end the run, nor
            # delay events for those who wait for them; the error is reported once.
            if self._is_recorded:
                self._is_recorded, self._problem = False, problem

    def close(self) -> bool:
        """Flush, and close the record's file, if there is one; on the engine's thread."""
        self.flush()
        rollout, self._rollout = self._rollout, None  # later events would open it again
        if rollout is not None:
            rollout.close()
        return rollout is not None
