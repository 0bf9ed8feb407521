"""Waits for a run on the calling thread: shows its events and runs its main-thread work.

The waiting thread is that of an awaiting cell, of ``await agent.run(...)``, or of a blocking
``run_sync``. It alone runs the person's sync functions and live code, and renders. `wait` does so
on a running loop, `wait_blocking` on a thread whose loop, if any, is busy.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeAlias

from agent_magics.dispatch.hooks import HookMethod
from agent_magics.dispatch.person_code import marks_own_code, marks_person_code
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.channels.redaction import redact_text
from agent_magics.engine.channels.requests import Work
from agent_magics.engine.foreground.event_hooks import EventWatch
from agent_magics.engine.foreground.host import Host, broken
from agent_magics.engine.foreground.inbox import AsyncInbox, BlockingInbox
from agent_magics.engine.foreground.interrupt import Stopped, interrupts_call, stoppable
from agent_magics.engine.foreground.sync_bridge import drive, drive_code, run_elsewhere, run_to_end
from agent_magics.engine.session import CLEAN_UP_LIMIT, Session
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.engine.turns.loop import ENDED
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import (
    TURN_ENDS,
    Event,
    ExecCommandOutputDelta,
    MainThreadWork,
    Question,
    QuestionResolved,
    Warned,
)
from agent_magics.protocol.ops import Answer, CallTool, Compact, Interrupt, StartTurn

_Inbox: TypeAlias = AsyncInbox | BlockingInbox

# The most seconds that printing code waits until its text has arrived through the
# engine and is drawn (about 1 ms where the machine has time), and how often it looks.
_MOST_PATIENT, _LOOK = 1.0, 0.001

_STUBBORN = (
    "An async function goes on though it was cancelled, and is left behind: let "
    "asyncio.CancelledError leave it."
)

# The run whose work is on this thread: calls of that work may need the same thread.
SERVING: ContextVar["Foreground | None"] = ContextVar("serving", default=None)


class Foreground:
    """One run as seen by the thread that waits for it.

    Args:
        session: the conversation.
        host: answers questions, runs live code, handles SIGINT.
        show: draws an event; called on this thread, in order.
        tick: called at least every heartbeat, for delayed drawing; returns whether there is some.
        after: called on the engine's thread with events of the turn's sessions after its end.
        watchers: the hooks' `on_event`, called on this thread after `show`.
        hear: called with each event on the engine's thread, also where this one is busy.
    """

    def __init__(
        self,
        session: Session,
        host: Host,
        show: Callable[[Event], object] | None = None,
        tick: Callable[[], Any] | None = None,
        after: Callable[[Event], None] | None = None,
        watchers: Sequence[HookMethod] = (),
        hear: Callable[[Event], None] | None = None,
    ) -> None:
        self._session = session
        self._host = host
        self._show = show or (lambda event: None)
        self._tick = tick or (lambda: None)
        self._after = after
        self._watch = EventWatch(watchers, self._warn) if watchers else None
        self._hear = hear
        self._secrets: tuple[str, ...] = ()
        self._turn_id = ""
        self._ended = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._live_code = asyncio.Lock()  # where it awaits, a sub-agent's waits for it to end
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._interrupt: BaseException | None = None
        self._waited = 0.0
        self._inbox: _Inbox | None = None
        self._is_blocked = False  # this thread has no loop to give now
        self._stopping = False
        self._elsewhere: set[Callable[[], Any]] = set()
        self.events: list[Event] = []

    def interrupt(self) -> None:
        """Stop the run at the next heartbeat; a signal handler may call this."""
        self._interrupt = KeyboardInterrupt()

    # -- the run ---------------------------------------------------------------------------------

    async def wait(
        self, op: StartTurn | CallTool | Compact, turn_config: TurnConfig
    ) -> list[Event]:
        """Start the turn and serve it until it ends.

        Args:
            op: the operation.
            turn_config: the configuration of the turn.

        Returns:
            The events of the turn.

        Raises:
            asyncio.CancelledError, KeyboardInterrupt, SystemExit: re-raised once the turn has been
                stopped.
        """
        return await self._serve(op, turn_config, AsyncInbox(asyncio.get_running_loop()))

    @marks_own_code
    def wait_blocking(
        self, op: StartTurn | CallTool | Compact, turn_config: TurnConfig
    ) -> list[Event]:
        """Like `wait`, for a thread whose loop, if it has one, is busy running the caller."""
        with interrupts_call(self.interrupt):  # raised as the turn begins, it would run on alone
            events: list[Event] = drive(self._serve(op, turn_config, BlockingInbox()))
        if self._interrupt is not None:  # pressed as the turn ended: what follows is to stop too
            raise self._interrupt
        return events

    def wait_sync(self, op: StartTurn | CallTool | Compact, turn_config: TurnConfig) -> list[Event]:
        """Do the same as `wait`, blocking; on a new event loop where this thread runs none."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            events: list[Event] = run_to_end(
                self.wait(op, turn_config), partial(self._warn, _STUBBORN)
            )
            return events
        return self.wait_blocking(op, turn_config)

    async def _serve(
        self, op: StartTurn | CallTool | Compact, turn_config: TurnConfig, inbox: _Inbox
    ) -> list[Event]:
        """Serve a turn until it ends; with a blocking inbox this never suspends."""
        self._turn_id, self._secrets = op.turn_id, turn_config.secrets
        self._inbox, self._is_blocked = inbox, isinstance(inbox, BlockingInbox)
        hear = self._hear

        def put(event: Event) -> None:
            if hear is not None:
                hear(event)
            inbox.put(event)

        try:
            self._session.begin(op, turn_config, put, self._after)
            await self._serve_begun(inbox)
        finally:
            inbox.close()
            for task in self._tasks:
                _cancel_soon(task)
            for cancel in tuple(self._elsewhere):
                with suppress(RuntimeError):  # its loop is closed
                    cancel()
        return self.events

    async def _serve_begun(self, inbox: _Inbox) -> None:
        try:
            await self._pump(inbox)
            if self._watch is not None:
                await self._watch.settle()
        except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
            await self._stop(inbox)
            raise interrupt from None
        except GeneratorExit:  # the loop is closed: nothing can be awaited any more
            self._session.submit(Interrupt(turn_id=self._turn_id))
            raise
        except BaseException:
            # Drawing failed, or `on_question` wants to exit: nobody would serve the turn any more.
            await self._stop(inbox)
            raise

    async def _pump(self, inbox: _Inbox, end: float = math.inf) -> None:
        """Handle events until the turn ends or the time is over."""
        while not self._ended and time.monotonic() < end:
            for event in inbox.take():
                self._receive(event)
            self._tick()
            if self._interrupt is not None:
                interrupt, self._interrupt = self._interrupt, None
                raise interrupt
            if not self._ended:
                await inbox.wait()

    async def _stop(self, inbox: _Inbox) -> None:
        """Stop the turn; the clean-up ends at its time limit, not at a second interrupt."""
        self._stopping = True
        self._session.submit(Interrupt(turn_id=self._turn_id))
        end = time.monotonic() + CLEAN_UP_LIMIT + 0.2
        while not self._ended and time.monotonic() < end:
            with suppress(asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                await self._pump(inbox, end)

    # -- events ----------------------------------------------------------------------------------

    def _receive(self, event: Event) -> None:
        self._note(event)
        if isinstance(event, QuestionResolved):
            self._forget_question(event)
        elif self._stopping:
            return
        elif isinstance(event, MainThreadWork):
            self._work(event)
        elif isinstance(event, Question):
            self._ask(event)

    def _forget_question(self, event: QuestionResolved) -> None:
        task = self._asked.pop(event.question_id, None)
        if task is not None:
            _cancel_soon(task)

    def _note(self, event: Event) -> None:
        if self._watch is not None:  # first, since a hook's warning must precede the end
            self._watch.see(event, loop_is_free=not self.blocks)
        self.events.append(event)
        self._show(event)
        self._ended |= isinstance(event, TURN_ENDS)

    def _warn(self, message: str) -> None:
        """Show a warning directly, since the engine may have ended the turn already."""
        message = redact_text(self._secrets, message)
        warned = Warned(turn_id=self._turn_id, agent=self._session.agent, message=message)
        self.events.insert(len(self.events) - self._ended, warned)
        if not self._ended:
            self._show(warned)
        self._session.outbox.emit("", Warned, message=message)  # for the record

    def _ask(self, question: Question) -> None:
        host = self._host
        try:
            answer = host.answer_blocking(question) if self._is_blocked else host.answer(question)
        except Exception as error:
            answer = broken(question, error)
        if isinstance(answer, Answer):
            self._session.submit(answer)
            return
        task = asyncio.create_task(self._deliver(question, answer))
        self._asked[question.question_id] = task
        self._keep(task)

    async def _deliver(self, question: Question, pending: Awaitable[Answer]) -> None:
        try:
            answer = await pending
        except asyncio.CancelledError:
            raise
        except Exception as error:
            answer = broken(question, error)
        except BaseException as interrupt:  # such as SystemExit: for the caller, not for the loop
            self._interrupt = interrupt
            return
        self._session.submit(answer)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- work on this thread ---------------------------------------------------------------------

    def _work(self, event: MainThreadWork) -> None:
        work = self._session.channels.work.take(event.question_id)
        if work is None:
            return
        if work.kind == "sync":
            self._run_sync(work, self.begin_work)
        elif not self._is_blocked:
            task = asyncio.create_task(self._run_async(work))
            work.stop = partial(asyncio.get_running_loop().call_soon_threadsafe, task.cancel)
            if work.is_ended:  # before there was anything to stop
                task.cancel()
            self._keep(task)
        elif work.kind == "python":
            self._run_sync(work, lambda work: drive_code(work.run()))
        else:
            # This thread's loop is busy with the caller: the coroutine gets another one. Front ends
            # may find the printing cell by the context.
            context = copy_context()
            context.run(SERVING.set, None)
            POOL.submit(context.run, run_elsewhere, work, self._elsewhere)

    def _run_sync(self, work: Work, run: Callable[[Work], Any]) -> None:
        with self._outcome(work):
            with self._host.guard(), stoppable(work):
                value = run(work)
            work.finish(value)

    async def _run_async(self, work: Work) -> None:
        with self._outcome(work):
            if work.kind == "python":
                async with self._live_code:
                    with self._host.guard(), stoppable(work):
                        value = await work.run()
            else:
                value = await work.run()
            work.finish(value)

    @contextmanager
    def _outcome(self, work: Work) -> Iterator[None]:
        """Serve the calls of the work inside, and set its exception as the work's error."""
        token = SERVING.set(self)
        try:
            yield
        except (Stopped, asyncio.CancelledError):
            work.finish(error=asyncio.CancelledError())
        except KeyboardInterrupt as interrupt:
            work.finish(error=asyncio.CancelledError())
            self._interrupt = interrupt
        except BaseException as error:
            work.finish(error=error)
        finally:
            with suppress(ValueError):  # a task that was left ends in another context
                SERVING.reset(token)

    @marks_person_code
    def begin_work(self, work: Work) -> object:
        """Run a function of the person's, unless an interrupt arrived just before.

        A front end lets an interrupt raise from here on; one that arrived a moment earlier has only
        set the flag, which a function that sleeps would never check.
        """
        if self._interrupt is not None:
            raise KeyboardInterrupt
        return work.run()

    # -- work on this thread that waits for calls of its own --------------------------------------

    @property
    def blocks(self) -> bool:
        """Whether the waiting thread has no free event loop."""
        return isinstance(self._inbox, BlockingInbox)

    def block_on(self, pending: "Future[Any]") -> Any:
        """Serve the run until `pending` is done, and return its result.

        For work on this thread that calls tools: their questions and their own work on this thread
        are handled here meanwhile. Questions are answered as where a cell blocks.

        Raises:
            Stopped: the person interrupted, or the run ends; `pending` is cancelled.
            RespondToModel: the run has ended, so that nobody would answer; `pending` is cancelled.
        """
        inbox = self._inbox
        if inbox is None or self._ended:  # a task left by code of an earlier turn
            pending.cancel()
            raise RespondToModel(ENDED)
        blocked, self._is_blocked = self._is_blocked, True
        pending.add_done_callback(lambda _: inbox.wake())
        try:
            while not pending.done():
                event = inbox.take_blocking()
                if event is not None:
                    self._receive(event)
                self._tick()
                if self._interrupt is not None or self._stopping:
                    pending.cancel()
                    raise Stopped
        finally:
            self._is_blocked = blocked
        return pending.result()

    def draw_meanwhile(self) -> None:
        """Draw pending events while work on this thread prints.

        Questions and other work stay queued. The printed text arrives through the engine's thread,
        for which this waits a moment.
        """
        inbox = self._inbox
        if not isinstance(inbox, AsyncInbox):
            return  # a cell that blocks is drawn when its calls end
        now = time.monotonic()
        end, came = now + _MOST_PATIENT, False
        while not came and time.monotonic() < end and self._interrupt is None:
            if inbox.must_act:
                break  # it waits for the end of this work, and so do all events after it
            event = inbox.take_one()
            if event is None:
                time.sleep(_LOOK)
                continue
            self._note(event)
            if isinstance(event, QuestionResolved):
                self._forget_question(event)
            came = isinstance(event, ExecCommandOutputDelta)
        # Drawing is delayed, and code that prints nothing more would never show its last
        # text; once a second this waits for it.
        waits = now - self._waited > 1.0
        self._waited = now if waits else self._waited
        while self._tick() and waits and time.monotonic() < end and self._interrupt is None:
            time.sleep(_LOOK)
        if self._interrupt is not None:
            raise Stopped


def _cancel_soon(task: "asyncio.Task[Any]") -> None:
    """Cancel a task at its loop's next step: one that is cancelled before its first one warns."""
    with suppress(RuntimeError):  # its loop is closed
        task.get_loop().call_soon(task.cancel)
