"""Runs the turns of a session: from the op that starts one to the event that ends it."""

import asyncio
import json
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from agent_magics.dispatch.context import Emit
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.channels.redaction import redact_text
from agent_magics.engine.context.history import FAILED, INTERRUPTED
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.cost import Spending
from agent_magics.engine.results.structured import UnfitAnswer
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.engine.turns.builder import SessionChannels, build_turn
from agent_magics.engine.turns.loop import Turn
from agent_magics.models.base import Model
from agent_magics.protocol.errors import FatalError, TurnAbort, short_message, typed_message
from agent_magics.protocol.events import (
    Event,
    McpServerChanged,
    SessionConfigured,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    Warned,
)
from agent_magics.protocol.items import UserMessage, text_of
from agent_magics.protocol.ops import BY_PERSON, CallTool, Compact, StartTurn
from agent_magics.protocol.tools import CustomPayload, FunctionPayload, ToolCall, ToolPayload

_LOG = logging.getLogger("agent_magics")

# The class of the event that ends a turn, and its fields.
Ending: TypeAlias = tuple[type[Event], dict[str, Any]]
_TurnWork: TypeAlias = Callable[[Turn], Awaitable[Ending]]


class TurnRunner:
    """Runs the turns of one session, each in a task of its own; on the engine's loop.

    Only one of them at a time has a prompt; single calls may be made meanwhile.

    Args:
        agent: the name that stands in messages.
        conversation: what the turns continue.
        channels: the channels of the session's turns.

    Attributes:
        conversation: the state that is kept from turn to turn.
        prompt: the id of the turn that has a prompt; "" while none is running.
        turn_configs: the configurations of the turns, by their ids.
    """

    def __init__(self, agent: str, conversation: Conversation, channels: SessionChannels) -> None:
        self._agent = agent
        self.conversation = conversation
        self._channels = channels
        self._outbox = channels.outbox
        self._server_changes: dict[str, dict[str, str]] = {}  # while no turn ran
        self.turn_configs: dict[str, TurnConfig] = {}
        self._tasks: dict[str, asyncio.Task[Ending]] = {}
        self.prompt = ""
        self._lock = threading.Lock()
        self._configured = False

    @property
    def under_way(self) -> tuple[str, ...]:
        """The ids of the turns that run, or are about to; from any thread."""
        return tuple(self.turn_configs)

    def reserve(self, turn_id: str) -> None:
        """Reserve the conversation for one prompt; two threads may try at the same time.

        Raises:
            FatalError: another prompt is running.
        """
        with self._lock:
            if self.prompt:
                raise FatalError(
                    f"Agent {self._agent!r} is at work on another prompt; wait for it, interrupt "
                    "it, or use another agent (name=...)."
                )
            self.prompt = turn_id

    def take_up(self, conversation: Conversation, record: Callable[[], object]) -> None:
        """Replace the conversation; from any thread.

        Args:
            conversation: the one that the next turns continue.
            record: records later events elsewhere; called once the old conversation has ended.

        Raises:
            FatalError: a prompt is running; its calls would lose their place in the conversation.
        """
        with self._lock:
            if self.prompt:
                raise FatalError(
                    f"Agent {self._agent!r} is at work; wait for it, or interrupt it, before reset."
                )
            self.conversation.close()
            self.conversation, self._configured = conversation, False
            record()

    def start(self, op: StartTurn | CallTool | Compact) -> None:
        """Start the turn of an operation, whose configuration is in `turn_configs`."""
        turn_id = op.turn_id
        task = asyncio.create_task(self._guard(turn_id, self._work_of(op)), name=f"turn {turn_id}")
        self._tasks[turn_id] = task
        # A callback also hears of a task that was cancelled before its first step.
        task.add_done_callback(partial(self._finish, turn_id))

    def interrupt(self, turn_id: str, reason: str) -> None:
        """Stop a turn, if it still runs."""
        task = self._tasks.get(turn_id)
        if task is not None:
            task.cancel(reason)

    async def stop(self, reason: str) -> None:
        """Stop all turns, and wait until they have cleaned up."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel(reason)
        if tasks:
            await asyncio.wait(tasks)

    def tell_server(self, server: str, status: str, message: str) -> None:
        """Report a status change of an MCP server in the running turns, else in the next one."""
        change = {"server": server, "status": status, "message": message}
        turns = tuple(self._tasks) if self._configured else ()
        if not turns:
            self._server_changes[server] = change
        for turn_id in turns:
            self._outbox.emit(turn_id, McpServerChanged, **change)

    def _work_of(self, op: StartTurn | CallTool | Compact) -> _TurnWork:
        """Return the work of a turn."""
        if isinstance(op, StartTurn):
            return partial(self._run_turn, op=op)
        return partial(self._run_call, op=op) if isinstance(op, CallTool) else _compact

    async def _guard(self, turn_id: str, work: _TurnWork) -> Ending:
        """Run a turn, and return the event that ends it."""
        turn_config = self.turn_configs[turn_id]
        turn: Turn | None = None
        try:
            turn = self._make_turn(turn_id, turn_config)
            ending = await work(turn)
            if turn_id == self.prompt:
                await self._sync()
            return ending
        # Of every kind, since an exception that passes here ends the engine or leaves the turn
        # without an end. A cancellation ends here, too: no task awaits the turn's own.
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and turn is not None:
                error = turn.context.stop.error or error
            kind, fields = ending_of(error, self._agent, turn_config.secrets)
            return kind, {**fields, **spent(turn)}
        finally:
            if turn is not None:
                turn.is_over = True

    async def _sync(self) -> None:
        """Flush the record to the disk before the end of a turn is reported."""
        self._outbox.flush()
        await asyncio.wrap_future(POOL.submit(self._outbox.sync))

    def _make_turn(self, turn_id: str, turn_config: TurnConfig) -> Turn:
        emit = partial(self._outbox.emit, turn_id)
        model = turn_config.open_model()  # first, since it may raise
        is_first, self._configured = not self._configured, True
        if is_first:
            self._emit_configured(emit, turn_config, model)
        turn = build_turn(turn_id, self.conversation, self._channels, turn_config, model)
        for change in self._server_changes.values():
            emit(McpServerChanged, **change)
        self._server_changes.clear()
        return turn

    def _finish(self, turn_id: str, task: "asyncio.Task[Ending]") -> None:
        """Clean up after a turn, then emit its end, at which the next one may begin."""
        try:
            kind, fields = task.result()
        except BaseException as error:
            kind, fields = ending_of(error, self._agent, self.turn_configs[turn_id].secrets)
        # A call made from inside a prompt's turn leaves that turn's open calls and grants alone.
        if self.prompt in ("", turn_id):
            how = FAILED if kind is TurnFailed else INTERRUPTED
            self.conversation.history.close_open_calls(how)
            self._outbox.flush()  # from here on there may be another conversation
            self.conversation.store.end_cell()
            self._give_back(turn_id)
        with self._lock:  # else the prompt that another thread reserves now would lose its place
            if self.prompt == turn_id:
                self.prompt = ""
        agents = self.turn_configs[turn_id].agents
        if agents is not None:
            agents.end_turn(turn_id, fields["reason"] if kind is TurnAborted else "")
        del self._tasks[turn_id], self.turn_configs[turn_id]
        self.conversation.files.finish(turn_id)
        self._outbox.emit_now(turn_id, kind, **fields)
        if kind is not TurnCompleted:  # of which `_guard` waits for the disk
            with suppress(RuntimeError):  # the program is ending: no thread can start
                POOL.submit(self._outbox.sync)

    def _give_back(self, turn_id: str) -> None:
        """Warn about messages that the model did not get before the turn ended."""
        for added in self._channels.additions.close(turn_id):
            message = f"Not sent, since the turn ended before it: {text_of(added.content)}"
            self._outbox.emit(turn_id, Warned, message=message)

    async def _run_turn(self, turn: Turn, op: StartTurn) -> Ending:
        turn_config = self.turn_configs[op.turn_id]
        emit, prompt = turn.context.emit, text_of(op.content)
        output = turn_config.output.name if turn_config.output else ""
        emit(TurnStarted, prompt=prompt, output=output)
        self.conversation.files.name(op.turn_id, redact_text(turn_config.secrets, prompt))
        for message in (*self.conversation.take_notes(), *turn_config.warnings()):
            emit(Warned, message=message)
        if turn_config.servers is not None:
            await turn_config.servers.require()
        turn.add_notifications()  # first: what they tell holds also where the turn is taken back
        self.conversation.begin_turn(op.turn_id)
        self._channels.additions.on_words = partial(self._channels.engine.post, turn.skip_calls)
        text = await turn.run(UserMessage(op.content))
        return TurnCompleted, {
            "text": text,
            "requests": turn.model_caller.requests,
            "unpriced": ", ".join(turn.model_caller.budget.spending.unpriced),
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

    def _emit_configured(self, emit: Emit, turn_config: TurnConfig, model: Model) -> None:
        config = turn_config.config
        emit(
            SessionConfigured,
            session_id=self.conversation.id,
            model=config.model,
            cwd=str(config.cwd),
            approval=str(config.approval),
            sandbox=str(config.sandbox),
            tools=tuple(spec.spec.name for spec in turn_config.specs),
            source=model.source,
        )


async def _compact(turn: Turn) -> Ending:
    await turn.model_caller.compaction.compact()
    return TurnCompleted, {"text": "", **spent(turn)}


def ending_of(error: BaseException, agent: str, secrets: tuple[str, ...]) -> Ending:
    """Return the last event of a turn that ended by an error.

    Args:
        error: what the turn raised.
        agent: the agent's name, for the log.
        secrets: texts to take out of the log.
    """
    match error:
        case UnfitAnswer():
            return TurnFailed, {"error": short_message(error), "text": error.text}
        case FatalError():
            return TurnFailed, {"error": short_message(error)}
        case TurnAbort():
            return TurnAborted, {"reason": short_message(error)}
        case asyncio.CancelledError():
            # Without a reason where its work on the main thread was interrupted before the turn.
            return TurnAborted, {
                "reason": short_message(error.args[0]) if error.args else BY_PERSON
            }
    # A bug of ours: the traceback for a report, one sentence for the person.
    trace = redact_text(secrets, "".join(traceback.format_exception(error)))
    _LOG.error("a turn of agent %s failed\n%s", agent, trace)
    bug = typed_message(error)
    return TurnFailed, {"error": f"Internal error in agent-magics ({bug}); please report it."}


def spent(turn: Turn | None) -> dict[str, object]:
    """Return the fields that say what a turn has cost; None is one that could not begin."""
    spending = turn.model_caller.budget.spending if turn is not None else Spending()
    return {"usage": spending.usage, "cost": spending.cost}
