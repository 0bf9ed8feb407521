"""A conversation across turns: its history, its grants, its questions; ops in, events out."""

import asyncio
import json
import logging
import os
import threading
import traceback
import uuid
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from agent_magics.backends.exec.processes import ProcessManager
from agent_magics.backends.exec.scratch import scratch_folder
from agent_magics.backends.workspace_journal import Way
from agent_magics.dispatch.context import TurnContext
from agent_magics.dispatch.dynamic import DynamicTool
from agent_magics.dispatch.grants import ApprovalStore
from agent_magics.dispatch.handles import HandleStore
from agent_magics.dispatch.orchestrator import ToolOrchestrator
from agent_magics.dispatch.rules import RuleBook
from agent_magics.dispatch.shelf import ToolShelf
from agent_magics.engine.asking import Asker
from agent_magics.engine.bill import Bill
from agent_magics.engine.changed_files import ChangedFiles
from agent_magics.engine.clients import ClientCalls
from agent_magics.engine.history import History
from agent_magics.engine.loop_gate import LoopGate
from agent_magics.engine.loop_guard import LoopGuard
from agent_magics.engine.meter import ContextMeter
from agent_magics.engine.news import Note, describe_end, told_of_undo
from agent_magics.engine.outbox import Listener, Outbox
from agent_magics.engine.requests import PendingQuestions, Work, WorkQueue
from agent_magics.engine.rollout import Rollout
from agent_magics.engine.secrets import redact_text
from agent_magics.engine.server_news import ServerNews
from agent_magics.engine.setup import RunSetup
from agent_magics.engine.structured import UnfitAnswer
from agent_magics.engine.thread import EngineThread
from agent_magics.engine.turn import Turn
from agent_magics.models.base import Model
from agent_magics.protocol.errors import FatalError, TurnAbort
from agent_magics.protocol.events import (
    Event,
    MainThreadWork,
    PlanStep,
    PlanUpdated,
    SessionConfigured,
    TurnAborted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    Warned,
)
from agent_magics.protocol.items import Usage, UserMessage, text_of
from agent_magics.protocol.ops import (
    Answer,
    CallTool,
    Compact,
    DynamicToolResponse,
    Interrupt,
    Op,
    RegisterTools,
    StartTurn,
    Steer,
)
from agent_magics.protocol.tools import (
    CustomPayload,
    FunctionPayload,
    ToolCall,
    ToolOutput,
)

_LOG = logging.getLogger("agent_magics")

_Ending: TypeAlias = tuple[type[Event], dict[str, Any]]

# How long a turn that was stopped may take to clean up before it is left to itself.
CLEAN_UP_LIMIT = 1.0


class Session:
    """One conversation on the engine's thread.

    `submit` may be called from any thread; everything else that changes runs on the engine's loop.
    """

    def __init__(self, engine: EngineThread, agent: str, rollout_folder: Path | None) -> None:
        self.engine = engine
        self.agent = agent
        self.id = uuid.uuid4().hex
        self.history = History()
        self.meter = ContextMeter(self.history)
        self.loops = LoopGuard()
        self.plan: tuple[PlanStep, ...] = ()
        self.bill = Bill()
        self.store = ApprovalStore()
        self.processes = ProcessManager()
        journals = None if rollout_folder is None else rollout_folder.with_name("changes")
        self.files = ChangedFiles(journals, self.id, agent)
        self._rules: RuleBook | None = None
        self.handles = _new_handles()
        self.work = WorkQueue(engine.loop)
        rollout = None if rollout_folder is None else Rollout(rollout_folder, self.id)
        self.outbox = Outbox(engine, agent, rollout)
        self.shelf = ToolShelf()
        self.uses: Counter[str] = Counter()
        self.found: dict[str, None] = {}
        self._servers = ServerNews(self.outbox)
        self._questions = PendingQuestions()
        self._clients = ClientCalls()
        self._setups: dict[str, RunSetup] = {}
        self._tasks: dict[str, asyncio.Task[_Ending]] = {}
        self._prompt_turn = ""
        self._begin_lock = threading.Lock()
        self._steered: list[UserMessage] = []
        self._news: deque[Note] = deque()
        self._configured = False

    # -- from outside, any thread ---------------------------------------------------------------

    def begin(
        self,
        op: StartTurn | CallTool | Compact,
        setup: RunSetup,
        listener: Listener,
        after: Listener | None = None,
    ) -> None:
        """Start a turn whose events go to `listener`, which is called on the engine's thread.

        Args:
            op: what to do.
            setup: what the turn runs with.
            listener: called with its events up to the one that ends it.
            after: called with what its open sessions do later.

        Raises:
            FatalError: another prompt is at work, or this process is a fork.
        """
        self.engine.check()
        if isinstance(op, (StartTurn, Compact)):
            self._reserve(op.turn_id)
        self.outbox.listen(op.turn_id, listener, setup.secrets, after)
        self._setups[op.turn_id] = setup
        self.submit(op)

    def _reserve(self, turn_id: str) -> None:
        """Keep the conversation for one prompt; two threads may try at the same time."""
        with self._begin_lock:
            if self._prompt_turn:
                raise FatalError(
                    f"Agent {self.agent!r} is at work on another prompt; wait for it, interrupt "
                    "it, or use another agent (name=...)."
                )
            self._prompt_turn = turn_id

    def submit(self, op: Op) -> None:
        """Hand an op to the engine."""
        self.engine.post(self._receive, op)

    @property
    def busy(self) -> bool:
        """Whether a prompt is at work; single calls may be made meanwhile."""
        return bool(self._prompt_turn)

    # -- ops, on the engine's loop ----------------------------------------------------------------

    def _receive(self, op: Op) -> None:
        match op:
            case StartTurn() | CallTool() | Compact():
                self._start(op.turn_id, self._work_of(op))
            case Answer():
                self._questions.resolve(op)
            case DynamicToolResponse():
                if not self._clients.resolve(op):
                    self._warn(f"An answer to the unknown call {op.call_id!r} was dropped.")
            case RegisterTools():
                self._register(op)
            case Steer():
                if op.turn_id == self._prompt_turn:
                    self._steered.append(UserMessage(op.content))
            case Interrupt():
                task = self._tasks.get(op.turn_id)
                if task is not None:
                    task.cancel(op.reason)

    def _work_of(self, op: StartTurn | CallTool | Compact) -> Callable[..., Any]:
        """Return what a turn is to do."""
        if isinstance(op, StartTurn):
            return partial(self._run_turn, content=op.content)
        return partial(self._run_call, op=op) if isinstance(op, CallTool) else self._compact

    def _register(self, op: RegisterTools) -> None:
        """Take a client's tools up; what cannot be is told where somebody listens."""
        for name in op.remove:
            if not self.shelf.remove(name):
                self._warn(f"There is no registered tool named {name!r} to remove.")
        for spec in op.add:
            try:
                self.shelf.add(DynamicTool(spec))
            except FatalError as error:
                self._warn(f"A client's tool was not registered: {error}")

    def _warn(self, message: str) -> None:
        """Say something that belongs to no turn: in all that run, or else in the log."""
        for turn_id in self._tasks:
            self.outbox.emit(turn_id, Warned, message=message)
        if not self._tasks:
            _LOG.warning("agent %s: %s", self.agent, message)

    def _start(self, turn_id: str, work: Callable[..., Any]) -> None:
        task = asyncio.create_task(self._guard(turn_id, work), name=f"turn {turn_id}")
        self._tasks[turn_id] = task
        # A callback also hears of a task that was cancelled before its first step.
        task.add_done_callback(partial(self._finish, turn_id))

    async def _guard(self, turn_id: str, work: Callable[..., Any]) -> _Ending:
        """Run a turn and return which of the three last events ends it."""
        emit = partial(self.outbox.emit, turn_id)
        setup = self._setups[turn_id]
        turn: Turn | None = None
        try:
            emit_configured = not self._configured
            self._configured = True
            model = setup.model()
            if emit_configured:
                self._emit_configured(emit, setup, model)
            turn = self._make_turn(turn_id, setup, model)
            self._servers.catch_up(emit)
            return await work(turn)
        except UnfitAnswer as error:
            return TurnFailed, {"error": str(error), "text": error.text, **_spent(turn)}
        except FatalError as error:
            return TurnFailed, {"error": str(error), **_spent(turn)}
        except TurnAbort as stop:
            return TurnAborted, {"reason": str(stop), **_spent(turn)}
        except asyncio.CancelledError as stop:
            # The one place where a cancellation ends: the turn's own task has nobody above it.
            return TurnAborted, {"reason": _reason(stop), **_spent(turn)}
        except BaseException as error:
            # Ours to mend: the traceback for the report, one sentence for the person. Of every
            # kind, since what goes on from here ends the engine or leaves the turn without an end.
            trace = redact_text(setup.secrets, traceback.format_exc())
            _LOG.error("a turn of agent %s failed\n%s", self.agent, trace)
            return TurnFailed, {"error": _bug(error), **_spent(turn)}

    def _finish(self, turn_id: str, task: "asyncio.Task[_Ending]") -> None:
        """Put the session in order, then tell the end: who hears it may begin the next turn."""
        try:
            kind, fields = task.result()
        except asyncio.CancelledError as stop:
            kind, fields = TurnAborted, {"reason": _reason(stop)}
        except BaseException as error:
            kind, fields = TurnFailed, {"error": _bug(error)}
        # A call made from inside a prompt's turn leaves that turn's open calls and grants alone.
        if self._prompt_turn in ("", turn_id):
            self.history.close_open_calls()
            self.store.end_cell()
            self._steered.clear()
            self._prompt_turn = ""
        del self._tasks[turn_id], self._setups[turn_id]
        self.files.finish(turn_id)
        self.outbox.emit(turn_id, kind, **fields)
        self.outbox.flush()

    async def _run_turn(self, turn: Turn, content: Any) -> _Ending:
        setup = self._setups[turn.context.turn_id]
        output = setup.output.name if setup.output is not None else ""
        turn.context.emit(TurnStarted, prompt=text_of(content), output=output)
        self.files.name(turn.context.turn_id, text_of(content))
        for message in setup.warnings():
            turn.context.emit(Warned, message=message)
        if setup.servers is not None:
            await setup.servers.require()
        text = await turn.run(UserMessage(content))
        unpriced = ", ".join(turn.asker.bill.unpriced)
        return TurnCompleted, {
            "text": text,
            "requests": turn.asker.requests,
            "unpriced": unpriced,
            "budget": turn.asker.budget.reached,
            **_spent(turn),
        }

    async def _compact(self, turn: Turn) -> _Ending:
        await turn.asker.shortening.compact()
        return TurnCompleted, {"text": "", **_spent(turn)}

    async def _run_call(self, turn: Turn, op: CallTool) -> _Ending:
        if op.text is not None:
            payload = CustomPayload(op.text)
        else:
            payload = FunctionPayload(_json(op.arguments))
        servers = turn.context.servers
        if servers is not None:
            await servers.require()
        call = ToolCall(op.name, f"call_{op.turn_id}", payload)
        self.files.name(op.turn_id, op.name)
        output: ToolOutput = await turn.run_call(call)
        return TurnCompleted, {"text": output.text}

    # -- what a turn is given ---------------------------------------------------------------------

    def _rules_in(self, folder: Path) -> RuleBook:
        """Return the rules for a workspace; their files are read again only when they change."""
        if self._rules is None or self._rules.folder != Path(os.path.realpath(folder)):
            self._rules = RuleBook(folder)
        self._rules.refresh()
        return self._rules

    def _make_turn(self, turn_id: str, setup: RunSetup, model: Model) -> Turn:
        emit = partial(self._emit, turn_id)
        context = TurnContext(
            session_id=self.id,
            turn_id=turn_id,
            agent=self.agent,
            config=setup.config,
            env=setup.env,
            emit=emit,
            ask=partial(self._questions.ask, emit),
            call=self._no_turn_yet,
            validate_path=setup.validate_path,
            messages=lambda: tuple(self.history.items),
            main_thread=partial(self._on_main_thread, emit),
            live_kernel=setup.live_kernel,
            diff_tracker=self.files.begin(turn_id, setup.config, emit),
            processes=self.processes,
            handles=self.handles,
            functions=setup.registry.functions,
            tell_later=self.tell,
            ask_client=partial(self._clients.ask, emit),
            servers=setup.servers,
            offer=setup.offer,
            found=self.found,
            uses=self.uses,
        )
        self.loops.limits = setup.config.loops
        router = LoopGate(
            setup.specs,
            setup.registry,
            ToolOrchestrator(self.store, self._rules_in(setup.config.cwd), setup.hooks),
            guard=self.loops,
        )
        asker = Asker(
            context,
            model,
            self.history,
            router.specs,
            charge=self._charge,
            meter=self.meter,
            plan=lambda: self.plan,
            hooks=setup.hooks,
        )
        turn = Turn(
            context,
            asker,
            router,
            self.history,
            redact=partial(redact_text, setup.secrets),
            steered=self._take_steered,
            news=partial(self._take_news, setup),
            loops=self.loops,
            output=setup.output,
        )
        context.call = partial(self._call_nested, turn)
        context.sample = asker.answer
        return turn

    def _emit(self, turn_id: str, kind: type[Event], **fields: Any) -> None:
        """Send an event of a turn; a new plan is kept, for when the old part is replaced."""
        if kind is PlanUpdated:
            self.plan = tuple(fields["steps"])
        self.outbox.emit(turn_id, kind, **fields)

    async def _call_nested(self, turn: Turn, *call: Any) -> ToolOutput:
        """Make a call from inside another one, which may be running on the person's own loop."""
        if asyncio.get_running_loop() is self.engine.loop:
            return await turn.call(*call)
        return await asyncio.wrap_future(self.engine.spawn(turn.call(*call)))

    async def _no_turn_yet(self, *_: Any) -> ToolOutput:
        raise FatalError("A tool was called before its turn began.")

    async def _on_main_thread(self, emit: Any, kind: str, call_id: str, name: str, run: Any) -> Any:
        """Have `run` done by the thread that waits for the run; the event only announces it."""
        work: Work = self.work.put(kind, run)
        emit(
            MainThreadWork,
            question_id=work.id,
            call_id=call_id,
            work=kind,
            name=name,
        )
        try:
            return await work.result
        except asyncio.CancelledError:
            work.end()
            raise
        finally:
            self.work.take(work.id)

    def _charge(self, model: str, usage: Usage) -> None:
        self.bill = self.bill.add(model, usage)

    # -- what turns changed in files --------------------------------------------------------------

    def undo(self, cwd: Path, count: int, *, force: bool, sessions: bool) -> Way:
        """Put back the files that the last turns changed, and tell the model; see the journal.

        Raises:
            FatalError: a turn is at work, there are not so many, or the disk refused.
        """
        self._refuse_at_work()
        way = self.files.journal_to_undo(cwd).undo(count, rest=force, doubtful=sessions)
        if way.paths:
            self.tell(told_of_undo(way, cwd, "undid", "Do not make them again unless asked"))
        return way

    def redo(self, cwd: Path) -> Way:
        """Make the turn again that was undone last, and tell the model.

        Raises:
            FatalError: a turn is at work, there is none, or the disk refused.
        """
        self._refuse_at_work()
        way = self.files.journal_to_undo(cwd).redo()
        if way.paths:
            self.tell(told_of_undo(way, cwd, "made again", "They hold"))
        return way

    def _refuse_at_work(self) -> None:
        if self._tasks:
            raise FatalError(f"Agent {self.agent!r} is at work; wait for it, or interrupt it.")

    def tell(self, text: str) -> None:
        """Tell the model something with its next request; safe from every thread."""
        self._news.append(Note(text))

    def _take_steered(self) -> list[UserMessage]:
        steered, self._steered = self._steered, []
        return steered

    def _take_news(self, setup: RunSetup) -> list[Note]:
        """Return what the model is to be told: of sessions and servers, and what tools left."""
        news = [describe_end(session) for session in self.processes.take_ended()]
        if setup.servers is not None:
            news += map(Note, setup.servers.news(self._servers.told))
        while self._news:
            news.append(self._news.popleft())
        return [replace(note, text=redact_text(setup.secrets, note.text)) for note in news]

    def tell_server(self, server: str, status: str, message: str) -> None:
        """Say that an MCP server changed; on the engine's loop."""
        turns = tuple(self._tasks) if self._configured else ()
        self._servers.add(server, status, message, turns)

    def _emit_configured(self, emit: Any, setup: RunSetup, model: Model) -> None:
        config = setup.config
        emit(
            SessionConfigured,
            session_id=self.id,
            model=config.model,
            cwd=str(config.cwd),
            approval=str(config.approval),
            sandbox=str(config.sandbox),
            tools=tuple(spec.spec.name for spec in setup.specs),
            source=model.source,
        )

    def reset(self) -> None:
        """Forget the conversation and what was granted, end its sessions; start afresh.

        Raises:
            FatalError: a prompt is at work; its calls would lose their place in the conversation.
        """
        with self._begin_lock:
            if self._prompt_turn:
                raise FatalError(
                    f"Agent {self.agent!r} is at work; wait for it, or interrupt it, before reset."
                )
            self.history.clear()
            self.meter.reset()
            self.loops.forget()
            self.plan = ()
            self.bill = Bill()
            self.store = ApprovalStore()
            self._news.clear()
            self.found.clear()
            self._servers.told.clear()
            self.uses.clear()
            self.handles.close()
            self.processes.close()
            self.handles, self.processes = _new_handles(), ProcessManager()

    def close(self) -> None:
        """Stop what runs, give it a second to clean up, and give files back."""
        self._on_engine(self._stop_turns())
        if self.engine.is_current():  # which must not wait
            threading.Thread(target=self.processes.close, daemon=True).start()
        else:
            self.processes.close()
        self.handles.close()
        self.files.close()
        self._on_engine(self._close_outbox())

    def _on_engine(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the engine do `work`, and wait for it where that is possible."""
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


def _new_handles() -> HandleStore:
    return HandleStore(parent=scratch_folder)


def _json(arguments: Any) -> str:
    return json.dumps(arguments or {}, default=str)


def _spent(turn: Turn | None) -> dict[str, Any]:
    bill = turn.asker.bill if turn is not None else Bill()
    return {"usage": bill.usage, "cost": bill.cost}


def _reason(stop: asyncio.CancelledError) -> str:
    return str(stop.args[0]) if stop.args else "interrupted"


def _bug(error: BaseException) -> str:
    return f"Internal error in agent-magics ({type(error).__name__}: {error}); please report it."
