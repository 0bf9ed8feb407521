"""Builds a turn from its conversation, its configuration and the session's channels."""

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agent_magics.approval.rules import RuleBook
from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.pipeline import ToolCallRuntime
from agent_magics.dispatch.router import ToolRouter
from agent_magics.dispatch.stages.orchestrator import ToolOrchestrator
from agent_magics.engine.channels.additions import Additions
from agent_magics.engine.channels.outbox import Outbox
from agent_magics.engine.channels.redaction import redact_text
from agent_magics.engine.channels.requests import ClientCalls, PendingQuestions, WorkQueue
from agent_magics.engine.conversation import Conversation
from agent_magics.engine.model_request import ModelCaller
from agent_magics.engine.repetition.approval import RepetitionApproval
from agent_magics.engine.thread import EngineThread
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.engine.turns.loop import ENDED, Turn
from agent_magics.models.base import Model
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import (
    CellChanged,
    Event,
    PlanUpdated,
    TurnDiffUpdated,
    VariablesKnown,
)
from agent_magics.protocol.tools import ToolOutput


@dataclass(frozen=True, slots=True)
class SessionChannels:
    """The channels that all turns of a session use.

    Attributes:
        outbox: sends events.
        work: the work for the thread that waits for the run.
        questions: the questions that wait for a person's answer.
        clients: the calls that outside clients run.
        additions: messages and prompts that the person adds to the running prompt.
    """

    engine: EngineThread
    outbox: Outbox
    work: WorkQueue
    additions: Additions
    questions: PendingQuestions = field(default_factory=PendingQuestions)
    clients: ClientCalls = field(default_factory=ClientCalls)


def build_turn(
    turn_id: str,
    conversation: Conversation,
    channels: SessionChannels,
    turn_config: TurnConfig,
    model: Model,
) -> Turn:
    """Build a turn of a conversation.

    Args:
        turn_id: its id.
        conversation: the conversation.
        channels: the session's channels.
        turn_config: the turn's configuration.
        model: the client that its requests go to.
    """
    config = turn_config.config
    rules = conversation.rules_in(config.cwd, config.writable_roots)
    # The turn holds its context, whose functions need the turn: they hold it weakly, so that it is
    # gone at its end, if nobody keeps an error of it.
    running: weakref.ref[Turn]

    def present() -> Turn:
        turn = running()
        if turn is None or turn.is_over:
            raise RespondToModel(ENDED)
        return turn

    context = _context(turn_id, conversation, channels, turn_config, rules, model, present)
    conversation.loops.limits = turn_config.config.loops
    model_caller = ModelCaller(context, model, conversation, turn_config)
    runtime = _runtime(context, conversation, turn_config, rules)
    turn = Turn(context, model_caller, runtime, conversation, channels.additions, turn_config)
    running = weakref.ref(turn)
    if turn_config.agents is not None:
        turn.agents = turn_config.agents.of_turn(turn_config, context, model_caller.budget)
    return turn


def _context(
    turn_id: str,
    conversation: Conversation,
    channels: SessionChannels,
    turn_config: TurnConfig,
    rules: RuleBook,
    model: Model,
    present: Callable[[], Turn],
) -> TurnContext:
    def emit(kind: type[Event], **fields: Any) -> None:
        if kind is PlanUpdated:  # kept for when the conversation is shortened
            conversation.plan = tuple(fields["steps"])
        elif kind is VariablesKnown:
            conversation.know(fields["variables"])
        elif kind is CellChanged:
            conversation.cell_changes.append(CellChanged(turn_id=turn_id, **fields))
        elif kind is TurnDiffUpdated:
            conversation.files.changed.add(turn_id)
        channels.outbox.emit(turn_id, kind, **fields)

    parent = turn_config.parent
    read_rules = partial(rules.read_rules, conversation.agent)
    conversation.handles.read_rules = read_rules
    return TurnContext(
        session_id=conversation.id,
        turn_id=turn_id,
        agent=conversation.agent,
        config=turn_config.config,
        env=turn_config.env,
        emit=emit,
        ask=partial(channels.questions.ask, emit) if parent is None else parent.ask,
        call=lambda *call: _call_nested(channels.engine, present(), *call),
        validate_path=turn_config.validate_path,
        messages=lambda: tuple(conversation.history.items),
        main_thread=partial(channels.work.run, emit) if parent is None else parent.main_thread,
        live_kernel=turn_config.live_kernel,
        diff_tracker=conversation.files.begin(turn_id, turn_config.config, emit, parent),
        processes=conversation.processes,
        read_rules=read_rules,
        handles=conversation.handles,
        functions=turn_config.registry.functions,
        tell_later=conversation.tell,
        ask_client=partial(channels.clients.ask, emit) if parent is None else parent.ask_client,
        servers=turn_config.servers,
        sample=lambda *asked: present().model_caller.answer(*asked),
        recorded=getattr(model, "recorded_output", lambda call_id: None),
        agents=lambda: present().agents,
        symbols=partial(turn_config.symbols, read_rules),
        offer=turn_config.offer,
        found=conversation.found,
        uses=conversation.uses,
    )


def _runtime(
    context: TurnContext, conversation: Conversation, turn_config: TurnConfig, rules: RuleBook
) -> ToolCallRuntime:
    store = conversation.store.of(turn_config.asker) if turn_config.asker else conversation.store
    return ToolCallRuntime(
        ToolRouter(turn_config.registry),
        context,
        ToolOrchestrator(store, rules, turn_config.hooks, turn_config.settled),
        hooks=turn_config.hooks,
        repetition=RepetitionApproval(conversation.loops),
        redact=partial(redact_text, turn_config.secrets) if turn_config.secrets else None,
    )


async def _call_nested(engine: EngineThread, turn: Turn, *call: Any) -> ToolOutput:
    """Run a call made inside another one, which may be on the person's own event loop."""
    doing: Coroutine[Any, Any, ToolOutput] = turn.call(*call)
    if asyncio.get_running_loop() is engine.loop:
        return await doing
    return await asyncio.wrap_future(engine.spawn(doing))
