"""Takes the ops of an agent: starts turns, passes answers on, replaces its conversation."""

import logging
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.dispatch.handlers.dynamic import DynamicTool
from agent_magics.dispatch.handlers.registrations import ToolRegistrations
from agent_magics.engine.channels.additions import Additions
from agent_magics.engine.channels.outbox import Listener, Outbox
from agent_magics.engine.channels.requests import WorkQueue
from agent_magics.engine.channels.rollout import Rollout
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.past.archive import Archive
from agent_magics.engine.thread import EngineThread
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.engine.turns.builder import SessionChannels
from agent_magics.engine.turns.runner import TurnRunner
from agent_magics.protocol import ops
from agent_magics.protocol.codec import ill_typed
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.events import Warned
from agent_magics.protocol.items import InputText, text_of
from agent_magics.protocol.records import ConversationNamed, RecordBegun

_LOG = logging.getLogger("agent_magics")

# Seconds that a stopped turn may take to clean up before it is abandoned.
CLEAN_UP_LIMIT = 1.0
_CLOSED = "This agent was closed: what it does since then is not recorded."


class Session:
    """Runs the turns of one conversation on the engine's thread.

    `submit` may be called from any thread; all other changes are made on the engine's loop.

    Attributes:
        turns: runs its turns.
        channels: the channels of its turns.
        registrations: the registered tools.
        configure: changes the settings of the turns to come; set by the agent.
        replaced: called on the loop when another conversation has taken the place of its own.

    Args:
        engine: the thread.
        agent: the name that stands on all events.
        rollout_folder: where conversations are recorded; None records none.
        describe: returns the first line of the record of a conversation, by its id.
        make_room: deletes old records; called before one is written.
    """

    def __init__(
        self,
        engine: EngineThread,
        agent: str,
        rollout_folder: Path | None,
        describe: Callable[[str], RecordBegun] | None = None,
        make_room: Callable[[], None] = lambda: None,
    ) -> None:
        self.engine = engine
        self.agent = agent
        self._archive = Archive(agent, rollout_folder, describe, make_room)
        conversation, rollout = self._archive.new()
        self.outbox = Outbox(engine, agent, rollout)
        conversation.record_in(self.outbox.keep, self.outbox.flush)
        additions = Additions(agent, self.outbox.keep, self._notice_keys)
        self.channels = SessionChannels(engine, self.outbox, WorkQueue(engine.loop), additions)
        self.turns = TurnRunner(agent, conversation, self.channels)
        self.registrations = ToolRegistrations()
        self.configure: Callable[[Mapping[str, Any]], None] = _refuse_settings
        self.replaced: Callable[[], object] = lambda: None
        self._is_shut_down = False

    # -- its conversation -------------------------------------------------------------------------

    def fork(self, turn: int | None = None, name: str = "") -> str:
        """Record a new conversation that shares this one's past, and return its id.

        Args:
            turn: the last shared turn, counted from 1; None means the last that has ended.
            name: its name in lists.

        Raises:
            FatalError: there is no such turn, or the record cannot be written.
        """
        self.begin_record()
        name = self._without_keys(name)
        return self._archive.fork(self.conversation, turn, name, running=self.turns.prompt)

    def rename(self, conversation: str, name: str) -> None:
        """Give a recorded conversation, this one or another, a name for lists.

        Raises:
            FatalError: there is no such record, another kernel uses it, or it cannot be written.
        """
        name = self._without_keys(name)
        if conversation == self.conversation.id:
            self.begin_record()
            self.outbox.keep(ConversationNamed(name=name))
            self.outbox.record()
        else:
            self._archive.rename(conversation, name)

    def resume(self, conversation: str, namespace: Mapping[str, Any]) -> None:
        """Replace the present conversation by a recorded one.

        Args:
            conversation: its id, or the beginning of it.
            namespace: the variables that are there now.

        Raises:
            FatalError: there is no such record, it cannot be used, or a turn is running.
        """
        before = self.conversation.files
        self._archive.resume(conversation, namespace, self._take_up)
        before.close()

    def begin_record(self) -> None:
        """Create the record of the conversation now, so that it can be resumed at any time.

        Raises:
            FatalError: it cannot be written.
        """
        self.outbox.begin_record()

    def reset(self) -> None:
        """Begin a new conversation without items and grants; commands end.

        The earlier turns' changes of files can still be undone, until it has changed some itself.

        Raises:
            FatalError: a prompt is running; its calls would lose their place in the conversation.
        """
        conversation, rollout = self._archive.new()
        conversation.files = self.conversation.files.following(conversation.id)
        self._take_up(conversation, rollout)

    def _take_up(self, conversation: Conversation, rollout: Rollout | None, last: int = 0) -> None:
        """Replace the conversation; `last` is the number of the last event in its record.

        Raises:
            FatalError: a prompt is running; its calls would lose their place in the conversation.
        """
        self.turns.take_up(conversation, lambda: self.outbox.record_in(rollout, last))
        conversation.record_in(self.outbox.keep, self.outbox.flush)
        self.engine.post(self.replaced)

    @property
    def conversation(self) -> Conversation:
        """The state that is kept from turn to turn."""
        return self.turns.conversation

    def at_rest(self) -> Conversation:
        """Return the conversation, to undo some of it.

        Raises:
            FatalError: a turn is running.
        """
        if self.turns.under_way:
            raise FatalError(f"Agent {self.agent!r} is at work; wait for it, or interrupt it.")
        return self.conversation

    # -- from outside, any thread ---------------------------------------------------------------

    def begin(
        self,
        op: ops.StartTurn | ops.CallTool | ops.Compact,
        turn_config: TurnConfig,
        listener: Listener,
        after: Listener | None = None,
    ) -> None:
        """Start a turn whose events go to `listener`, which is called on the engine's thread.

        Args:
            op: the operation.
            turn_config: the configuration of the turn.
            listener: called with its events up to the one that ends it.
            after: called with later events of its open sessions.

        Raises:
            FatalError: another prompt is running, this process is a fork, or the operation has
                fields of other types.
        """
        if why := _misfit(op):
            raise FatalError(f"{type(op).__name__} cannot begin: {why}.")
        self.engine.check()
        if self._is_shut_down:
            raise FatalError(
                f"The session of agent {self.agent!r} was shut down; make another one."
            )
        if isinstance(op, (ops.StartTurn, ops.Compact)):
            self.turns.reserve(op.turn_id)
        if isinstance(op, ops.StartTurn):
            self.conversation.notice_keys(text_of(op.content))
            self.additions.open(op.turn_id, partial(self.outbox.emit, op.turn_id))
        turn_config = turn_config.hiding(self.conversation.typed_keys)
        self.outbox.listen(op.turn_id, listener, turn_config.secrets, after)
        self.turns.turn_configs[op.turn_id] = turn_config
        self.engine.post(self._receive, op)

    def _without_keys(self, text: str) -> str:
        """Return a name that the person gives without keys, which it would show for ever."""
        self._notice_keys(text)
        return self.outbox.redacted(text)

    def _notice_keys(self, text: str) -> None:
        """Redact keys that the person types into what is added to the running prompt."""
        self.conversation.notice_keys(text)
        self.outbox.hide(self.conversation.typed_keys)

    def submit(self, op: ops.Op) -> None:
        """Submit an operation to the engine.

        Operations are handled in order. A change of the tools or the settings takes effect at once,
        since the configuration of the next turn is built before the engine gets it. What is no
        operation, or has fields of other types, is dropped with a warning; whoever waits for its
        answer gets a refusal.
        """
        if why := _misfit(op):
            self._warn(f"{type(op).__name__} was dropped: {why}.")
            match op:
                case ops.Answer(question_id=str() as asked):
                    op = ops.denied(asked, f"the answer was {why}")
                case ops.DynamicToolResponse(call_id=str() as call):
                    said = (InputText(f"The client's answer was {why}."),)
                    op = ops.DynamicToolResponse(call_id=call, content_items=said, success=False)
                case _:
                    return
        match op:
            case ops.RegisterTools():
                self._register(op)
            case ops.Configure():
                self._configure(op)
            case ops.Shutdown():
                self._shut_down()
            case ops.Steer() | ops.QueuePrompt():
                self._add(op)
            case ops.DropPrompt():
                self.additions.drop(op.prompt_id)
            case _:
                self.engine.post(self._receive, op)

    @property
    def additions(self) -> Additions:
        """The messages and prompts that the person adds to the running prompt."""
        return self.channels.additions

    @property
    def busy(self) -> bool:
        """Whether a prompt is running; single calls may be made meanwhile."""
        return bool(self.turns.prompt)

    # -- ops, on the engine's loop ----------------------------------------------------------------

    def _receive(self, op: ops.Op) -> None:
        match op:
            case ops.StartTurn() | ops.CallTool() | ops.Compact():
                if op.turn_id in self.turns.turn_configs:
                    self.turns.start(op)
                else:
                    how = "a turn begins by agent.run, agent.call or Session.begin"
                    self._warn(f"{type(op).__name__} was dropped: {how}.")
            case ops.Answer():
                self.channels.questions.resolve(op)
            case ops.DynamicToolResponse():
                if not self.channels.clients.resolve(op):
                    self._warn(f"An answer to the unknown call {op.call_id!r} was dropped.")
            case ops.Interrupt():
                self.turns.interrupt(op.turn_id, op.reason)

    def _add(self, op: ops.Steer | ops.QueuePrompt) -> None:
        """Add to the running prompt; warn where it is meant for another one."""
        try:
            if isinstance(op, ops.Steer):
                self.additions.steer(op.content, op.turn_id)
            else:
                self.additions.queue(op.prompt_id, op.content, op.turn_id)
        except FatalError as error:
            self._warn(f"Words for the turn {op.turn_id!r} were dropped: {short_message(error)}")

    def _register(self, op: ops.RegisterTools) -> None:
        """Register a client's tools; warn about those that are not usable."""
        for name in op.remove:
            if not self.registrations.remove(name):
                self._warn(f"There is no registered tool named {name!r} to remove.")
        for spec in op.add:
            try:
                self.registrations.add(DynamicTool(spec))
            except FatalError as error:
                self._warn(f"A client's tool was not registered: {short_message(error)}")

    def _configure(self, op: ops.Configure) -> None:
        """Change the settings of later turns, all or none."""
        try:
            self.configure(op.settings)
        except FatalError as error:
            self._warn(f"The settings were not changed: {short_message(error)}")

    def _shut_down(self) -> None:
        """Close the session on another thread, and accept no more turns."""
        self._is_shut_down = True
        threading.Thread(target=self.close, name="agent-magics: shutdown", daemon=True).start()

    def _warn(self, message: str) -> None:
        """Show a warning that belongs to no turn: in a running one, or else in the log."""
        turn_id = self.turns.prompt or next(iter(self.turns.under_way), "")
        if turn_id:
            self.outbox.emit(turn_id, Warned, message=message)
        else:
            _LOG.warning("agent %s: %s", self.agent, message)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop running turns, give them a second to clean up, and close files."""
        self._on_engine(self.turns.stop("the agent was closed"))
        if self.engine.is_current():  # the engine's thread must not wait
            threading.Thread(target=self.conversation.processes.close, daemon=True).start()
        else:
            self.conversation.processes.close()
        self.conversation.handles.close()
        self.conversation.files.close()
        self._on_engine(self._close_outbox())

    def _on_engine(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work on the engine, and wait for it where that is possible."""
        with suppress(FatalError, TimeoutError):
            doing = self.engine.spawn(work)
            if not self.engine.is_current():
                doing.result(CLEAN_UP_LIMIT)

    async def _close_outbox(self) -> None:
        if self.outbox.close():
            self.conversation.notes.append(_CLOSED)


def _refuse_settings(settings: Mapping[str, object]) -> None:
    raise FatalError("this session's settings are not its own.")


def _misfit(op: object) -> str:
    """Return why an operation cannot be handled, and what to do; "" if it can."""
    if not isinstance(op, ops.Op):
        return "it is no operation; send one of those in agent_magics.protocol.ops"
    if not (wrong := ill_typed(op)):
        return ""
    return (
        f"of another type than its fields have: {', '.join(wrong)}; send it again with the types "
        f"that agent_magics.protocol.ops.{type(op).__name__} declares"
    )
