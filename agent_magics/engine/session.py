"""Runs the turns of a conversation on the engine's thread; ops in, events out."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from agent_magics.dispatch.handlers.dynamic import DynamicTool
from agent_magics.dispatch.handlers.registrations import ToolRegistrations
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.turn.context import Emit
from agent_magics.engine.channels.additions import Additions
from agent_magics.engine.channels.outbox import Listener, Outbox
from agent_magics.engine.channels.requests import WorkQueue
from agent_magics.engine.channels.rollout import Rollout
from agent_magics.engine.channels.server_notifications import ServerNews
from agent_magics.engine.context.history import FAILED, INTERRUPTED
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.past.archive import Archive
from agent_magics.engine.thread import EngineThread
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.engine.turns.builder import SessionChannels, build_turn
from agent_magics.engine.turns.endings import Ending, ending_of, spent
from agent_magics.engine.turns.loop import Turn
from agent_magics.models.base import Model
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import (
    SessionConfigured,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    Warned,
)
from agent_magics.protocol.items import UserMessage, text_of
from agent_magics.protocol.ops import (
    Answer,
    CallTool,
    Compact,
    Configure,
    DropPrompt,
    DynamicToolResponse,
    Interrupt,
    Op,
    QueuePrompt,
    RegisterTools,
    Shutdown,
    StartTurn,
    Steer,
)
from agent_magics.protocol.records import ConversationNamed, RecordBegun
from agent_magics.protocol.tools import CustomPayload, FunctionPayload, ToolCall, ToolPayload

_LOG = logging.getLogger("agent_magics")

_TurnWork: TypeAlias = Callable[[Turn], Awaitable[Ending]]

# Seconds that a stopped turn may take to clean up before it is abandoned.
CLEAN_UP_LIMIT = 1.0


class Session:
    """Runs the turns of one conversation on the engine's thread.

    `submit` may be called from any thread; all other changes are made on the engine's loop.

    Attributes:
        conversation: the state that is kept from turn to turn.
        channels: the channels of its turns.
        registrations: the registered tools.
        configure: changes the settings of the turns to come; set by the agent.

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
        self.conversation, rollout = self._archive.new()
        self.outbox = Outbox(engine, agent, rollout)
        self.conversation.record_in(self.outbox.keep, self.outbox.flush)
        additions = Additions(agent, self.outbox.keep, self._notice_keys)
        self.channels = SessionChannels(engine, self.outbox, WorkQueue(engine.loop), additions)
        self.registrations = ToolRegistrations()
        self.configure: Callable[[Mapping[str, Any]], None] = _refuse_settings
        self._servers = ServerNews(self.outbox)
        self._setups: dict[str, TurnConfig] = {}
        self._tasks: dict[str, asyncio.Task[Ending]] = {}
        self._prompt_turn = ""
        self._begin_lock = threading.Lock()
        self._configured = False
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
        return self._archive.fork(self.conversation, turn, name, running=self._prompt_turn)

    def rename(self, conversation: str, name: str) -> None:
        """Give a recorded conversation, this one or another, a name for lists.

        Raises:
            FatalError: there is no such record, another kernel uses it, or it cannot be written.
        """
        if conversation == self.conversation.id:
            self.begin_record()
            self.outbox.keep(ConversationNamed(name=name))
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
        self._archive.resume(conversation, namespace, self._take_up)

    def begin_record(self) -> None:
        """Create the record of the conversation now, so that it can be resumed at any time.

        Raises:
            FatalError: it cannot be written.
        """
        self.outbox.begin_record()

    def reset(self) -> None:
        """Begin a new conversation without items and grants; commands end.

        The earlier turns' changes of files can still be undone.

        Raises:
            FatalError: a prompt is running; its calls would lose their place in the conversation.
        """
        conversation, rollout = self._archive.new()
        conversation.files = self.conversation.files
        self._take_up(conversation, rollout)

    def _take_up(self, conversation: Conversation, rollout: Rollout | None, last: int = 0) -> None:
        """Replace the conversation; `last` is the number of the last event in its record.

        Raises:
            FatalError: a prompt is running; its calls would lose their place in the conversation.
        """
        with self._begin_lock:
            if self._prompt_turn:
                raise FatalError(
                    f"Agent {self.agent!r} is at work; wait for it, or interrupt it, before reset."
                )
            self.conversation.close()
            self.conversation, self._configured = conversation, False
            self.outbox.record_in(rollout, last)
        conversation.record_in(self.outbox.keep, self.outbox.flush)

    def at_rest(self) -> Conversation:
        """Return the conversation, to undo some of it.

        Raises:
            FatalError: a turn is running.
        """
        if self._tasks:
            raise FatalError(f"Agent {self.agent!r} is at work; wait for it, or interrupt it.")
        return self.conversation

    # -- from outside, any thread ---------------------------------------------------------------

    def begin(
        self,
        op: StartTurn | CallTool | Compact,
        setup: TurnConfig,
        listener: Listener,
        after: Listener | None = None,
    ) -> None:
        """Start a turn whose events go to `listener`, which is called on the engine's thread.

        Args:
            op: the operation.
            setup: the configuration of the turn.
            listener: called with its events up to the one that ends it.
            after: called with later events of its open sessions.

        Raises:
            FatalError: another prompt is running, or this process is a fork.
        """
        self.engine.check()
        if self._is_shut_down:
            raise FatalError(
                f"The session of agent {self.agent!r} was shut down; make another one."
            )
        if isinstance(op, (StartTurn, Compact)):
            self._reserve(op.turn_id)
        if isinstance(op, StartTurn):
            self.conversation.notice_keys(text_of(op.content))
            self.additions.open(op.turn_id, partial(self.outbox.emit, op.turn_id))
        setup.hide(self.conversation.typed_keys)
        self.outbox.listen(op.turn_id, listener, setup.secrets, after)
        self._setups[op.turn_id] = setup
        self.submit(op)

    def _notice_keys(self, text: str) -> None:
        """Redact keys that the person types into what is added to the running prompt."""
        self.conversation.notice_keys(text)
        self.outbox.hide(self.conversation.typed_keys)

    def _reserve(self, turn_id: str) -> None:
        """Reserve the conversation for one prompt; two threads may try at the same time."""
        with self._begin_lock:
            if self._prompt_turn:
                raise FatalError(
                    f"Agent {self.agent!r} is at work on another prompt; wait for it, interrupt "
                    "it, or use another agent (name=...)."
                )
            self._prompt_turn = turn_id

    def submit(self, op: Op) -> None:
        """Submit an operation to the engine.

        Operations are handled in order. A change of the tools or the settings takes effect at once,
        since the configuration of the next turn is built before the engine gets it.
        """
        match op:
            case RegisterTools():
                self._register(op)
            case Configure():
                self._configure(op)
            case Shutdown():
                self._shut_down()
            case Steer() | QueuePrompt():
                self._add(op)
            case DropPrompt():
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
        return bool(self._prompt_turn)

    # -- ops, on the engine's loop ----------------------------------------------------------------

    def _receive(self, op: Op) -> None:
        match op:
            case StartTurn() | CallTool() | Compact():
                self._start(op.turn_id, self._work_of(op))
            case Answer():
                self.channels.questions.resolve(op)
            case DynamicToolResponse():
                if not self.channels.clients.resolve(op):
                    self._warn(f"An answer to the unknown call {op.call_id!r} was dropped.")
            case Interrupt():
                task = self._tasks.get(op.turn_id)
                if task is not None:
                    task.cancel(op.reason)

    def _work_of(self, op: StartTurn | CallTool | Compact) -> _TurnWork:
        """Return the work of a turn."""
        if isinstance(op, StartTurn):
            return partial(self._run_turn, op=op)
        return partial(self._run_call, op=op) if isinstance(op, CallTool) else _compact

    def _add(self, op: Steer | QueuePrompt) -> None:
        """Add to the running prompt; warn where it is meant for another one."""
        try:
            if isinstance(op, Steer):
                self.additions.steer(op.content, op.turn_id)
            else:
                self.additions.queue(op.prompt_id, op.content, op.turn_id)
        except FatalError as error:
            self._warn(f"Words for the turn {op.turn_id!r} were dropped: {error}")

    def _register(self, op: RegisterTools) -> None:
        """Register a client's tools; warn about those that are not usable."""
        for name in op.remove:
            if not self.registrations.remove(name):
                self._warn(f"There is no registered tool named {name!r} to remove.")
        for spec in op.add:
            try:
                self.registrations.add(DynamicTool(spec))
            except FatalError as error:
                self._warn(f"A client's tool was not registered: {error}")

    def _configure(self, op: Configure) -> None:
        """Change the settings of later turns, all or none."""
        try:
            self.configure(op.settings)
        except FatalError as error:
            self._warn(f"The settings were not changed: {error}")

    def _shut_down(self) -> None:
        """Close the session on another thread, and accept no more turns."""
        self._is_shut_down = True
        threading.Thread(target=self.close, name="agent-magics: shutdown", daemon=True).start()

    def _warn(self, message: str) -> None:
        """Show a warning that belongs to no turn: in a running one, or else in the log."""
        turn_id = self._prompt_turn or next(iter(tuple(self._tasks)), "")
        if turn_id:
            self.outbox.emit(turn_id, Warned, message=message)
        else:
            _LOG.warning("agent %s: %s", self.agent, message)

    def _start(self, turn_id: str, work: _TurnWork) -> None:
        task = asyncio.create_task(self._guard(turn_id, work), name=f"turn {turn_id}")
        self._tasks[turn_id] = task
        # A callback also hears of a task that was cancelled before its first step.
        task.add_done_callback(partial(self._finish, turn_id))

    async def _guard(self, turn_id: str, work: _TurnWork) -> Ending:
        """Run a turn, and return the event that ends it."""
        setup = self._setups[turn_id]
        turn: Turn | None = None
        try:
            turn = self._make_turn(turn_id, setup)
            ending = await work(turn)
            if turn_id == self._prompt_turn:
                await self._sync()
            return ending
        # Of every kind, since an exception that passes here ends the engine or leaves the turn
        # without an end. A cancellation ends here, too: no task awaits the turn's own.
        except BaseException as error:
            kind, fields = ending_of(error, self.agent, setup.secrets)
            return kind, {**fields, **spent(turn)}

    async def _sync(self) -> None:
        """Flush the record to the disk before the end of a turn is reported."""
        self.outbox.flush()
        await asyncio.wrap_future(POOL.submit(self.outbox.sync))

    def _make_turn(self, turn_id: str, setup: TurnConfig) -> Turn:
        emit = partial(self.outbox.emit, turn_id)
        is_first, self._configured = not self._configured, True
        model = setup.model()
        if is_first:
            self._emit_configured(emit, setup, model)
        turn = build_turn(turn_id, self.conversation, self.channels, setup, model)
        self._servers.catch_up(emit)
        return turn

    def _finish(self, turn_id: str, task: "asyncio.Task[Ending]") -> None:
        """Clean up after a turn, then emit its end, at which the next one may begin."""
        try:
            kind, fields = task.result()
        except BaseException as error:
            kind, fields = ending_of(error, self.agent, self._setups[turn_id].secrets)
        # A call made from inside a prompt's turn leaves that turn's open calls and grants alone.
        if self._prompt_turn in ("", turn_id):
            how = FAILED if kind is TurnFailed else INTERRUPTED
            self.conversation.history.close_open_calls(how)
            self.outbox.flush()  # from here on there may be another conversation
            self.conversation.store.end_cell()
            self._give_back(turn_id)
            self._prompt_turn = ""
        agents = self._setups[turn_id].agents
        if agents is not None:
            agents.end_turn(turn_id, fields["reason"] if kind is TurnAborted else "")
        del self._tasks[turn_id], self._setups[turn_id]
        self.conversation.files.finish(turn_id)
        self.outbox.emit(turn_id, kind, **fields)
        self.outbox.flush()
        if kind is not TurnCompleted:  # of which `_guard` waits for the disk
            with suppress(RuntimeError):  # the program is ending: no thread can start
                POOL.submit(self.outbox.sync)

    def _give_back(self, turn_id: str) -> None:
        """Warn about messages that the model did not get before the turn ended."""
        for added in self.additions.close(turn_id):
            message = f"Not sent, since the turn ended before it: {text_of(added.content)}"
            self.outbox.emit(turn_id, Warned, message=message)

    async def _run_turn(self, turn: Turn, op: StartTurn) -> Ending:
        setup, emit, prompt = self._setups[op.turn_id], turn.context.emit, text_of(op.content)
        emit(TurnStarted, prompt=prompt, output=setup.output.name if setup.output else "")
        self.conversation.files.name(op.turn_id, prompt)
        for message in (*self.conversation.take_notes(), *setup.warnings()):
            emit(Warned, message=message)
        if setup.servers is not None:
            await setup.servers.require()
        self.conversation.history.begin_turn(op.turn_id)
        self.additions.on_words = partial(self.engine.post, turn.skip_calls)
        text = await turn.run(UserMessage(op.content))
        return TurnCompleted, {
            "text": text,
            "requests": turn.model_caller.requests,
            "unpriced": ", ".join(turn.model_caller.spending.unpriced),
            "budget": turn.model_caller.budget.reached,
            **spent(turn),
        }

    async def _run_call(self, turn: Turn, op: CallTool) -> Ending:
        payload: ToolPayload = FunctionPayload(json.dumps(op.arguments or {}, default=str))
        if op.text is not None:
            payload = CustomPayload(op.text)
        servers = turn.context.servers
        if servers is not None:
            await servers.require()
        self.conversation.files.name(op.turn_id, op.name)
        output = await turn.run_call(ToolCall(op.name, f"call_{op.turn_id}", payload))
        return TurnCompleted, {"text": output.text}

    def _emit_configured(self, emit: Emit, setup: TurnConfig, model: Model) -> None:
        config = setup.config
        emit(
            SessionConfigured,
            session_id=self.conversation.id,
            model=config.model,
            cwd=str(config.cwd),
            approval=str(config.approval),
            sandbox=str(config.sandbox),
            tools=tuple(spec.spec.name for spec in setup.specs),
            source=model.source,
        )

    def tell_server(self, server: str, status: str, message: str) -> None:
        """Report a status change of an MCP server; on the engine's loop."""
        turns = tuple(self._tasks) if self._configured else ()
        self._servers.add(server, status, message, turns)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop running turns, give them a second to clean up, and close files."""
        self._on_engine(self._stop_turns())
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

    async def _stop_turns(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel("the agent was closed")
        if tasks:
            await asyncio.wait(tasks)

    async def _close_outbox(self) -> None:
        self.outbox.close()


def _refuse_settings(settings: Mapping[str, Any]) -> None:
    raise FatalError("this session's settings are not its own.")


async def _compact(turn: Turn) -> Ending:
    await turn.model_caller.compaction.compact()
    return TurnCompleted, {"text": "", **spent(turn)}
