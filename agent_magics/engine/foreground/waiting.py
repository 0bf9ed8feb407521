"""The thread that waits for a run: it shows the events and does the work that belongs to it.

"Main" is whoever waits: an awaiting cell, ``await agent.run(...)``, a blocking ``run_sync``. It
alone runs the person's sync functions and live code, and renders. Two pumps do the same thing:
`wait` on a running loop, `wait_blocking` on a thread that has none to give.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from agent_magics.dispatch.hooks import HookMethod
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.event_watch import EventWatch
from agent_magics.engine.host import Host, broken
from agent_magics.engine.inbox import HEARTBEAT, AsyncInbox
from agent_magics.engine.loopless import drive, run_elsewhere
from agent_magics.engine.requests import Work
from agent_magics.engine.secrets import redact_text
from agent_magics.engine.session import CLEAN_UP_LIMIT, Session
from agent_magics.engine.setup import RunSetup
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

# Seconds that code which prints waits at most until what it printed has come back by way of the
# engine and is drawn (about 1 ms where the machine has time), and how often it looks.
_MOST_PATIENT, _LOOK = 1.0, 0.001

# Whose work runs here: what this work calls may need the same thread, which then serves it.
SERVING: ContextVar["Foreground | None"] = ContextVar("serving", default=None)


class Foreground:
    """One run as seen by the thread that waits for it.

    Args:
        session: the conversation.
        host: the surroundings.
        show: draws an event; called on this thread, in order.
        tick: called at least every `HEARTBEAT` seconds, for drawing that is held back;
            true while some is.
        after: called with what the turn's open sessions do after its end; on the engine's thread.
        watchers: the hooks' `on_event`, called on this thread after `show`.
    """

    def __init__(
        self,
        session: Session,
        host: Host,
        show: Callable[[Event], None] | None = None,
        tick: Callable[[], Any] | None = None,
        after: Callable[[Event], None] | None = None,
        watchers: Sequence[HookMethod] = (),
    ) -> None:
        self._session = session
        self._host = host
        self._show = show or (lambda event: None)
        self._tick = tick or (lambda: None)
        self._after = after
        self._watch = EventWatch(watchers, self._warn) if watchers else None
        self._loop_is_free = False
        self._secrets: Sequence[str] = ()
        self._turn_id = ""
        self._ended = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._interrupt: BaseException | None = None
        self._waited = 0.0
        self._inbox: AsyncInbox | SimpleQueue[Event | None] | None = None
        self._stopping = False
        self._elsewhere: set[Callable[[], Any]] = set()
        self.events: list[Event] = []

    def interrupt(self) -> None:
        """Stop the run at the next heartbeat; a signal handler may call this."""
        self._interrupt = KeyboardInterrupt()

    # -- on a running loop ------------------------------------------------------------------------

    async def wait(self, op: StartTurn | CallTool | Compact, setup: RunSetup) -> list[Event]:
        """Start the turn and serve it until it ends.

        Raises:
            asyncio.CancelledError, KeyboardInterrupt, SystemExit: re-raised once the turn has
                been stopped.
        """
        self._turn_id, self._secrets = op.turn_id, setup.secrets
        self._loop_is_free = True
        inbox = self._inbox = AsyncInbox(asyncio.get_running_loop())
        try:
            self._session.begin(op, setup, inbox.put, self._after)
            await self._pump(inbox, None)
            if self._watch is not None:
                await self._watch.settle()
        except (asyncio.CancelledError, KeyboardInterrupt) as interrupt:
            await self._stop(inbox)
            raise interrupt from None
        except GeneratorExit:  # the loop is gone: nothing can be awaited any more
            self._session.submit(Interrupt(turn_id=self._turn_id))
            raise
        except BaseException:
            # Drawing failed, or `on_question` wants to exit: nobody would serve the turn any more.
            await self._stop(inbox)
            raise
        finally:
            inbox.close()
            for task in self._tasks:
                task.cancel()
        return self.events

    async def _pump(self, inbox: "AsyncInbox", limit: float | None) -> None:
        deadline = None if limit is None else time.monotonic() + limit
        while not self._ended and (deadline is None or time.monotonic() < deadline):
            for event in inbox.take():
                self._receive(event)
            self._tick()
            if self._interrupt is not None:
                raise self._interrupt
            if not self._ended:
                await inbox.wait()

    async def _stop(self, inbox: "AsyncInbox") -> None:
        """Stop the turn; a second interrupt does not shorten the clean-up, the limit does."""
        self._stopping = True
        self._session.submit(Interrupt(turn_id=self._turn_id))
        end = time.monotonic() + CLEAN_UP_LIMIT + 0.2
        while not self._ended and time.monotonic() < end:
            self._interrupt = None
            with suppress(asyncio.CancelledError, KeyboardInterrupt, SystemExit):
                await self._pump(inbox, end - time.monotonic())

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
            # Soon, not now: a coroutine that has not begun would complain.
            asyncio.get_running_loop().call_soon(task.cancel)

    def _note(self, event: Event) -> None:
        if self._watch is not None:  # first, since a complaint must not stand behind the end
            self._watch.see(event, loop_is_free=self._loop_is_free)
        self.events.append(event)
        self._show(event)
        self._ended |= isinstance(event, TURN_ENDS)

    def _warn(self, message: str) -> None:
        """Say what happened on this thread; the engine may have ended the turn by now."""
        message = redact_text(self._secrets, message)
        warned = Warned(turn_id=self._turn_id, agent=self._session.agent, message=message)
        self.events.insert(len(self.events) - self._ended, warned)
        if not self._ended:
            self._show(warned)
        self._session.outbox.emit("", Warned, message=message)  # for the record

    def _work(self, event: MainThreadWork) -> None:
        work = self._session.work.take(event.question_id)
        if work is None:
            return
        if work.kind == "sync":
            self._run_sync(work)
        else:
            task = asyncio.create_task(self._run_async(work))
            if work.kind == "async":
                # A time-out ends it; live code is ended by an interrupt only.
                loop = asyncio.get_running_loop()
                work.stop = partial(loop.call_soon_threadsafe, task.cancel)
            self._keep(task)

    # -- work on this thread that waits for calls of its own --------------------------------------

    @property
    def blocks(self) -> bool:
        """Whether the thread that waits has no loop to give."""
        return isinstance(self._inbox, SimpleQueue)

    def block_on(self, pending: "Future[Any]") -> Any:
        """Serve the run until `pending` is done, and return its result.

        For work on this thread that calls tools: their questions and their own work on this thread
        come here meanwhile. Questions are answered as where a cell blocks.

        Raises:
            KeyboardInterrupt: the person interrupted; `pending` is cancelled.
            RespondToModel: the run has ended, so that nobody would answer; likewise.
        """
        if self._ended:  # a task that code of an earlier turn has left behind
            pending.cancel()
            raise RespondToModel("the turn that started this code has ended; nobody can be asked.")
        inbox = self._inbox
        ready = threading.Event()
        wake: Callable[[], None] = ready.set
        if isinstance(inbox, AsyncInbox):
            previous, inbox.alarm = inbox.alarm, ready.set
        elif inbox is not None:
            wake = partial(inbox.put, None)
        pending.add_done_callback(lambda _: wake())
        try:
            while not pending.done():
                event = self._next_event(inbox, ready)
                if event is not None:
                    self._receive_blocking(event)
                self._tick()
                if self._interrupt is not None or self._stopping:
                    pending.cancel()
                    raise KeyboardInterrupt
        finally:
            if isinstance(inbox, AsyncInbox):
                inbox.alarm = previous
        return pending.result()

    def draw_meanwhile(self) -> None:
        """Draw what has come, for work on this thread that has just said something.

        Questions and other work stay in line. What this work said comes by way of the engine's
        thread, which is given a moment.
        """
        inbox = self._inbox
        if not isinstance(inbox, AsyncInbox):
            return  # a cell that blocks is drawn when its calls end
        now = time.monotonic()
        end, came = now + _MOST_PATIENT, False
        while not came and time.monotonic() < end and self._interrupt is None:
            if inbox.must_act:
                break  # that waits for the end of this work, and all behind it too
            event = inbox.take_one(drawn_only=True)
            if event is None:
                time.sleep(_LOOK)
                continue
            self._note(event)
            if isinstance(event, QuestionResolved):
                self._forget_question(event)
            came = isinstance(event, ExecCommandOutputDelta)
        # Drawing is held back for a moment, and code that falls silent now would never show its
        # words; once a second it waits for them.
        waits = now - self._waited > 1.0
        self._waited = now if waits else self._waited
        while self._tick() and waits and time.monotonic() < end and self._interrupt is None:
            time.sleep(_LOOK)
        if self._interrupt is not None:
            raise KeyboardInterrupt

    def _next_event(self, inbox: Any, ready: threading.Event) -> Event | None:
        """Wait for an event, or for `ready`; at most a heartbeat."""
        if isinstance(inbox, SimpleQueue):
            with suppress(Empty):
                return inbox.get(timeout=HEARTBEAT)
            return None
        event = inbox.take_one()
        if event is None:
            ready.wait(HEARTBEAT)
            ready.clear()
        return event

    def _run_sync(self, work: Work, driver: Callable[[Any], Any] | None = None) -> None:
        token = SERVING.set(self)
        try:
            with self._host.guard():
                value = self.begin_work(work) if driver is None else driver(work.run())
        except KeyboardInterrupt as interrupt:
            work.finish(error=asyncio.CancelledError())
            self._interrupt = interrupt
        except BaseException as error:
            work.finish(error=error)
        else:
            work.finish(value)
        finally:
            SERVING.reset(token)

    def begin_work(self, work: Work) -> Any:
        """Run a function of the person's, unless an interrupt came on the way here.

        A front end lets an interrupt raise from here on; one that came a moment earlier has only
        set the flag, and a function that sleeps would never look at it.
        """
        if self._interrupt is not None:
            raise KeyboardInterrupt
        return work.run()

    async def _run_async(self, work: Work) -> None:
        SERVING.set(self)  # for this task alone
        guard = self._host.guard() if work.kind == "python" else nullcontext()
        try:
            with guard:
                value = await work.run()
        except asyncio.CancelledError:
            work.finish(error=asyncio.CancelledError())
            raise
        except KeyboardInterrupt as interrupt:
            work.finish(error=asyncio.CancelledError())
            self._interrupt = interrupt
        except BaseException as error:
            work.finish(error=error)
        else:
            work.finish(value)

    def _ask(self, question: Question) -> None:
        try:
            answer = self._host.answer(question)
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
        except BaseException as interrupt:  # SystemExit, say: for whoever waits, not for the loop
            self._interrupt = interrupt
            return
        self._session.submit(answer)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- on a thread that blocks -------------------------------------------------------------------

    def wait_blocking(self, op: StartTurn | CallTool | Compact, setup: RunSetup) -> list[Event]:
        """Like `wait`, for a thread whose loop, if it has one, is busy running the caller."""
        self._turn_id, self._secrets = op.turn_id, setup.secrets
        inbox: SimpleQueue[Event | None] = SimpleQueue()
        self._inbox = inbox
        self._session.begin(op, setup, inbox.put, self._after)
        try:
            self._pump_blocking(inbox, None)
        except BaseException:
            self._stopping = True
            self._session.submit(Interrupt(turn_id=op.turn_id))
            end = time.monotonic() + CLEAN_UP_LIMIT + 0.2
            while not self._ended and time.monotonic() < end:
                with suppress(KeyboardInterrupt):
                    self._pump_blocking(inbox, end - time.monotonic())
            raise
        finally:
            for cancel in tuple(self._elsewhere):
                with suppress(RuntimeError):  # its loop has just ended
                    cancel()
        return self.events

    def _pump_blocking(self, inbox: "SimpleQueue[Event | None]", limit: float | None) -> None:
        deadline = None if limit is None else time.monotonic() + limit
        while not self._ended and (deadline is None or time.monotonic() < deadline):
            with suppress(Empty):
                event = inbox.get(timeout=HEARTBEAT)
                if event is not None:
                    self._receive_blocking(event)
            self._tick()
            if self._interrupt is not None:
                interrupt, self._interrupt = self._interrupt, None
                raise interrupt

    def _receive_blocking(self, event: Event) -> None:
        self._note(event)
        if self._stopping:
            return
        if isinstance(event, MainThreadWork):
            work = self._session.work.take(event.question_id)
            if work is not None and work.kind == "async":
                # This thread's loop is busy with the caller: the coroutine gets another one. Front
                # ends may know by the context which cell it is that prints.
                context = copy_context()
                context.run(SERVING.set, None)
                POOL.submit(context.run, run_elsewhere, work, self._elsewhere)
            elif work is not None and work.kind == "python":
                self._run_sync(work, drive)
            elif work is not None:
                self._run_sync(work)
        elif isinstance(event, Question):
            try:
                answer = self._host.answer_blocking(event)
            except Exception as error:
                answer = broken(event, error)
            self._session.submit(answer)
