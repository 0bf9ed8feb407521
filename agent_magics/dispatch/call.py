"""Defines the states of a tool call, and the data that its stages share."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

from agent_magics.approval.actions import Action, NeedsApproval
from agent_magics.dispatch.consent.edits import readable_payload
from agent_magics.dispatch.context import ToolContext, TurnContext
from agent_magics.dispatch.registry import ToolHandler, ToolInvocation
from agent_magics.dispatch.status import CallStatus
from agent_magics.protocol.events import Event, ToolCallChanged
from agent_magics.protocol.tools import ToolCall, ToolOutput


class CallLock:
    """A shared/exclusive lock with a queue: calls take their place first and wait for it later.

    A call takes its place when it arrives and waits for it only after its approval, so that a late
    answer never changes the order in which calls that exclude each other run.
    """

    def __init__(self) -> None:
        self._queue: deque[QueuePlace] = deque()

    def take_place(self, *, shared: bool) -> "QueuePlace":
        """Return a place at the end of the queue."""
        place = QueuePlace(self, shared)
        self._queue.append(place)
        return place

    def _admit(self) -> None:
        """Admit the front of the queue: one exclusive place, or the shared ones before the next."""
        for number, place in enumerate(self._queue):
            if number and not (place.shared and self._queue[0].shared):
                return
            place.admitted.set()

    def _exclude(self, place: "QueuePlace") -> None:
        place.shared = False
        if place.admitted.is_set():
            self._queue.remove(place)
            place.admitted.clear()
            self._queue.insert(sum(each.admitted.is_set() for each in self._queue), place)

    def _leave(self, place: "QueuePlace") -> None:
        self._queue.remove(place)
        self._admit()


class QueuePlace:
    """A call's place in the queue of a `CallLock`."""

    def __init__(self, lock: CallLock, shared: bool) -> None:
        self._lock = lock
        self.shared = shared
        self.admitted = asyncio.Event()

    def is_admitted(self) -> bool:
        """Return whether the calls in front allow this one to run now."""
        self._lock._admit()
        return self.admitted.is_set()

    def exclude(self) -> None:
        """Make the place exclusive; one that was admitted goes behind the others that were."""
        self._lock._exclude(self)

    async def wait(self) -> None:
        """Wait until the place is admitted."""
        if not self.is_admitted():
            await self.admitted.wait()

    def leave(self) -> None:
        """Leave the queue, and admit the next places."""
        self._lock._leave(self)


class CallState(StrEnum):
    """The progress of a call; `NEXT` holds the allowed transitions."""

    PENDING = "pending"  # it has arrived, and holds its place among the others
    ASKING = "asking"  # a question about it is open
    RUNNING = "running"  # its place has come
    ENDED = "ended"  # it has an output


# A question can be asked before a call runs, directly before its tool is called, and after the
# sandbox refused something; then the call returns to its previous state.
NEXT: Mapping[CallState, frozenset[CallState]] = {
    CallState.PENDING: frozenset({CallState.ASKING, CallState.RUNNING, CallState.ENDED}),
    CallState.ASKING: frozenset({CallState.PENDING, CallState.RUNNING, CallState.ENDED}),
    CallState.RUNNING: frozenset({CallState.ASKING, CallState.ENDED}),
    CallState.ENDED: frozenset(),
}


class CallInProgress:
    """The data of one call that its stages share; no tool sees it.

    Args:
        call: the call as the model wrote it.
        turn: the data that all calls of its turn share.

    Attributes:
        place: its place in the order of the turn's calls; None under that of its parent.
        context: the tool's view of the call.
        status: the part of these data that the tool may read.
        state: changed by `move` alone.
        handler: the handler of its tool.
        invocation: its checked arguments; hooks and the person may change them.
        actions: its effects, as they were judged.
        requirement: the question that is due; None where none is.
        asked: whether a person (or a program on their behalf) approved these very actions.
        bypass: whether it may leave the sandbox.
        is_settled: whether neither its arguments nor the environment can change the decision.
        ended: the number of calls that had run when it was judged.
        has_waited: whether it waited, for an answer or for its place, since it was judged.
        was_attempted: whether its tool was called.
        task: the task that runs it.
        may_stop: whether it has begun, and may be ended before its tool is called.
        skipped: why it is not run any more, for the model; "" where it is.
        note: text that is put before its output for the model.
    """

    handler: ToolHandler
    invocation: ToolInvocation
    output: ToolOutput
    # Class attributes are the initial values, so that making a call sets few attributes.
    state = CallState.PENDING
    actions: Sequence[Action] = ()
    requirement: NeedsApproval | None = None
    place: QueuePlace | None = None
    asked = False
    bypass = False
    is_settled = False
    ended = 0
    has_waited = False
    was_attempted = False
    task: "asyncio.Task[Any] | None" = None
    may_stop = False
    skipped = ""
    note = ""

    def __init__(self, call: ToolCall, turn: TurnContext) -> None:
        self.call = call
        self.turn = turn
        self.status = CallStatus()
        self.context = ToolContext(
            turn, call.call_id, call.tool_name, call.parent_call_id, self.status
        )

    def move(self, state: CallState) -> None:
        """Change to another state.

        Raises:
            RuntimeError: the transition is not allowed.
        """
        if state not in NEXT[self.state]:
            raise RuntimeError(f"A call that is {self.state} cannot be {state} next.")
        self.state = state

    def change(self, invocation: ToolInvocation, by: Literal["approver", "hook"]) -> None:
        """Replace the arguments of the call, and emit the event that reports it."""
        self.invocation = invocation
        self.emit(ToolCallChanged, arguments=readable_payload(invocation.call.payload), by=by)

    def emit(self, kind: type[Event], **fields: Any) -> None:
        """Emit an event of the call, with its ids and its tool's name."""
        call = self.call
        parent = call.parent_call_id
        self.turn.emit(
            kind, call_id=call.call_id, name=call.tool_name, parent_call_id=parent, **fields
        )

    def skip(self, reason: str) -> None:
        """Answer the call with `reason` instead of running it, unless its tool has been called."""
        if self.was_attempted:
            return
        self.skipped = reason
        if self.may_stop and self.task is not None:
            self.task.cancel()

    @property
    def is_command(self) -> bool:
        """Whether it runs a command."""
        return any(action.is_command for action in self.actions)
