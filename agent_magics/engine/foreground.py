"""The thread that waits for a run: it shows the events and does the work that belongs to it.

"Main" is whoever waits: an awaiting cell, ``await agent.run(...)``, a blocking ``run_sync``. It
alone runs the person's sync functions and live code, and renders. Two pumps do the same thing:
`wait` on a running loop, `wait_blocking` on a thread that has none to give.
"""

import asyncio
import inspect
import json
import signal
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from agent_magics.dispatch.hooks import HookMethod
from agent_magics.dispatch.pool import POOL
from agent_magics.engine.event_watch import EventWatch
from agent_magics.engine.requests import Work
from agent_magics.engine.secrets import redact_text
from agent_magics.engine.session import CLEAN_UP_LIMIT, RunSetup, Session
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import (
    TURN_ENDS,
    ApprovalRequested,
    DynamicToolCallRequest,
    Event,
    ExecCommandOutputDelta,
    MainThreadWork,
    Question,
    QuestionResolved,
    Warned,
)
from agent_magics.protocol.ops import DECISIONS, Answer, CallTool, Compact, Interrupt, StartTurn

# SIGINT does not wake an idle loop; this often the waiting thread looks up (measured: 0.2-0.3 s
# from interrupt to prompt, against 11 s without).
HEARTBEAT = 0.05

# Seconds that code which prints waits at most until what it printed has come back by way of the
# engine and is drawn (about 1 ms where the machine has time), and how often it looks.
_MOST_PATIENT, _LOOK = 1.0, 0.001

# What the waiting thread must act on; what it only draws can wait for the next heartbeat. A
# wake-up costs two threads a fight for the interpreter.
_URGENT = (Question, QuestionResolved, DynamicToolCallRequest, *TURN_ENDS)

NOBODY = (
    "nobody can be asked here. To allow such calls beforehand, answer with on_question=...; "
    "approval='never' lets code run in the kernel, sandbox='danger-full-access' lets commands run. "
    "Or find a way that needs no approval."
)


# Whose work runs here: what this work calls may need the same thread, which then serves it.
SERVING: ContextVar["Foreground | None"] = ContextVar("serving", default=None)


class Host(Protocol):
    """The surroundings of a run: who answers, how live code runs, what SIGINT does meanwhile."""

    def answer(self, question: Question) -> "Answer | Awaitable[Answer]":
        """Answer a question, at once or when awaited."""
        ...

    def answer_blocking(self, question: Question) -> Answer:
        """Answer a question from a thread that has no loop to give."""
        ...

    def guard(self) -> AbstractContextManager[Any]:
        """Hold around work on this thread, so that an interrupt reaches the person's code."""
        ...


class ProgramHost:
    """The surroundings of a plain program: `on_question` answers, or nobody does."""

    def __init__(self, on_question: Callable[[Question], Any] | None = None) -> None:
        self._on_question = on_question

    def answer(self, question: Question) -> "Answer | Awaitable[Answer]":
        """Ask `on_question`, plain or async."""
        if self._on_question is None:
            return denied(question)
        answer = self._on_question(question)
        if inspect.isawaitable(answer):
            return self._await(question, answer)
        return as_answer(question, answer)

    async def _await(self, question: Question, answer: Awaitable[Any]) -> Answer:
        return as_answer(question, await answer)

    def answer_blocking(self, question: Question) -> Answer:
        """Ask `on_question`; an async one runs on a loop of its own."""
        answer = self.answer(question)
        return answer if isinstance(answer, Answer) else POOL.submit(_run, answer).result()

    def guard(self) -> AbstractContextManager[Any]:
        """Let SIGINT raise in the person's function; asyncio's own handler would only cancel."""
        return _plain_interrupts()


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def denied(question: Question, reason: str = NOBODY) -> Answer:
    """Return the answer that policy gives when nobody can be asked."""
    return Answer(question_id=question.question_id, decision="deny", feedback=reason, by="policy")


def as_answer(question: Question, value: Any, by: str = "program") -> Answer:
    """Turn what `on_question` returned into an answer to this question.

    Args:
        question: what was asked.
        value: a decision's name, or an object with `decision` and perhaps `feedback` and
            `edited_arguments` (JSON text, or a dict) or `edited_text` (the question's `editable`,
            changed).
        by: who answered.
    """
    decision = value if isinstance(value, str) else getattr(value, "decision", None)
    any_words = not isinstance(question, ApprovalRequested)
    if not isinstance(decision, str) or not (any_words or decision in DECISIONS):
        choices = ", ".join(DECISIONS)
        return denied(
            question, f"on_question returned {value!r}, which is no decision; there are: {choices}."
        )
    edited = getattr(value, "edited_arguments", None)
    return Answer(
        question_id=question.question_id,
        decision=decision,
        feedback=str(getattr(value, "feedback", "") or ""),
        edited_arguments=edited
        if edited is None or isinstance(edited, str)
        else json.dumps(edited),
        edited_text=getattr(value, "edited_text", None),
        by=by,
    )


def _broken(question: Question, error: Exception) -> Answer:
    return denied(question, f"on_question raised {type(error).__name__}: {error}")


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
        self._inbox: _AsyncInbox | SimpleQueue[Event | None] | None = None
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
        inbox = self._inbox = _AsyncInbox(asyncio.get_running_loop())
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

    async def _pump(self, inbox: "_AsyncInbox", limit: float | None) -> None:
        deadline = None if limit is None else time.monotonic() + limit
        while not self._ended and (deadline is None or time.monotonic() < deadline):
            for event in inbox.take():
                self._receive(event)
            self._tick()
            if self._interrupt is not None:
                raise self._interrupt
            if not self._ended:
                await inbox.wait()

    async def _stop(self, inbox: "_AsyncInbox") -> None:
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
            task = self._asked.pop(event.question_id, None)
            if task is not None:
                # Soon, not now: a coroutine that has not begun would complain.
                asyncio.get_running_loop().call_soon(task.cancel)
        elif self._stopping:
            return
        elif isinstance(event, MainThreadWork):
            self._work(event)
        elif isinstance(event, Question):
            self._ask(event)

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
        come here meanwhile. Questions are answered as where a cell blocks: no click can arrive.

        Raises:
            KeyboardInterrupt: the person interrupted; `pending` is cancelled.
        """
        inbox = self._inbox
        ready = threading.Event()
        wake: Callable[[], None] = ready.set
        if isinstance(inbox, _AsyncInbox):
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
            if isinstance(inbox, _AsyncInbox):
                inbox.alarm = previous
        return pending.result()

    def draw_meanwhile(self) -> None:
        """Draw what has come, for work on this thread that has just said something.

        Questions and other work stay in line. What this work said comes by way of the engine's
        thread, which is given a moment.
        """
        inbox = self._inbox
        if not isinstance(inbox, _AsyncInbox):
            return  # a cell that blocks is drawn when its calls end
        now = time.monotonic()
        end, came = now + _MOST_PATIENT, False
        while not came and time.monotonic() < end and self._interrupt is None:
            event = inbox.take_one(drawn_only=True)
            if event is None:
                time.sleep(_LOOK)
                continue
            self._note(event)
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

    def _run_sync(self, work: Work, drive: Callable[[Any], Any] | None = None) -> None:
        token = SERVING.set(self)
        try:
            with self._host.guard():
                value = self.begin_work(work) if drive is None else drive(work.run())
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
            answer = _broken(question, error)
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
            answer = _broken(question, error)
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
                # This thread's loop is busy with the caller: the coroutine gets another one.
                POOL.submit(_run_elsewhere, work, self._elsewhere)
            elif work is not None and work.kind == "python":
                self._run_sync(work, _drive)
            elif work is not None:
                self._run_sync(work)
        elif isinstance(event, Question):
            try:
                answer = self._host.answer_blocking(event)
            except Exception as error:
                answer = _broken(event, error)
            self._session.submit(answer)


async def _as_coroutine(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _run(awaitable: Awaitable[Any]) -> Any:
    with asyncio.Runner() as runner:
        return runner.run(_as_coroutine(awaitable))


def _drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that is not expected to wait, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RespondToModel(
        "This cell blocks the notebook's event loop, so top-level await cannot run in it; "
        "write the code without await."
    )


def _run_elsewhere(work: Work, running: set[Callable[[], Any]]) -> None:
    """Run a coroutine on a loop of its own; what cancels it is kept in `running` meanwhile."""

    async def cancellable() -> Any:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        work.stop = cancel = partial(loop.call_soon_threadsafe, task.cancel)
        running.add(cancel)
        try:
            return await work.run()
        finally:
            running.discard(cancel)

    try:
        work.finish(_run(cancellable()))
    except BaseException as error:
        work.finish(error=error)


class _AsyncInbox:
    """Events from other threads for one waiting coroutine; wakes it once, however many come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[Event] = deque()
        self._waking = False
        self.alarm: Callable[[], None] | None = None  # of who blocks this loop meanwhile
        self._wake = asyncio.Event()
        self._beat: asyncio.TimerHandle | None = loop.call_later(HEARTBEAT, self._on_beat)

    def put(self, event: Event) -> None:
        """Add an event; from any thread."""
        self._events.append(event)
        alarm = self.alarm
        if alarm is not None and isinstance(event, _URGENT):
            alarm()
        if not self._waking and isinstance(event, _URGENT):
            self._waking = True
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._wake.set)

    def take_one(self, *, drawn_only: bool = False) -> Event | None:
        """Return the next event, without waiting; None where there is none.

        Args:
            drawn_only: leave what has to be acted on.
        """
        if not self._events or (drawn_only and isinstance(self._events[0], _URGENT)):
            return None
        return self._events.popleft()

    def take(self) -> list[Event]:
        """Return what has come, without waiting."""
        self._wake.clear()
        self._waking = False  # before the look: what comes after it wakes again
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    async def wait(self) -> None:
        """Wait for an event or the next heartbeat."""
        if self._events:
            # However fast they come, clicks and interrupts on this loop get their turn.
            await asyncio.sleep(0)
        else:
            await self._wake.wait()

    def _on_beat(self) -> None:
        self._wake.set()
        self._beat = self._loop.call_later(HEARTBEAT, self._on_beat)

    def close(self) -> None:
        """Stop the heartbeat."""
        if self._beat is not None:
            self._beat.cancel()
