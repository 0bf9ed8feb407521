"""Runs one map on the engine's loop: reads rows, asks about them, keeps answers, hands them on.

A reader fills a queue with questions, a batch at a time; workers ask them. Rows that ask the same
wait for one answer, and what the store has is not asked. An answer counts when it is written.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import Any, TypeVar

from agent_magics.dispatch.results.cutting import encodable
from agent_magics.engine.results.structured import REPAIR
from agent_magics.protocol.errors import (
    FatalError,
    RespondToModel,
    full_message,
    short_message,
    typed_message,
)
from agent_magics.protocol.items import AssistantMessage, UserMessage
from agent_magics.rows.asking import GIVEN_UP, Asker, NotSent, RowAnswer, RowQuestion, Terms
from agent_magics.rows.budgets import CHOICES, GO_ON, Budgets, Quote, quote_of
from agent_magics.rows.outcomes import Outcome, Plain, Sink, not_asked
from agent_magics.rows.progress import BAD_ROW, Progress
from agent_magics.rows.prompts import Asked, Entry, Prompt, asked_row, digest_of
from agent_magics.rows.store import AnswerStore, Kept, Stored
from agent_magics.rows.tables.columns import AnswerColumns
from agent_magics.rows.tables.sources import BATCH, Held, Row, Source

Read = TypeVar("Read")

# Questions that are read ahead for each that is asked.
AHEAD = 2
SAMPLE = 50
# Rows that are looked at, beyond the sample, to tell how many of all must be asked.
LOOKED_AT = 20_000

BY_PERSON = "you stopped it"
# Seconds after the end in which answers that were asked for are still taken.
GRACE = 5.0
NOT_AGAIN = "the answer does not fit, and was not asked for again: {reason}"
NOT_KEPT = "answers cannot be kept: {error}"
NOT_READ = "the rows could not be read further: {error}"
NOT_CHECKED = "the type of the answers failed itself ({error})"


@dataclass(slots=True)
class Plan:
    """The rows, the questions and the limits of a map.

    Attributes:
        ask_above: USD from which the person is asked first; None never asks.
        at_once: the most questions side by side.
        most_characters: the longest prompt that is sent.
        ahead: the questions that the asker may hold beyond those.
    """

    source: Source
    prompt: Prompt
    columns: AnswerColumns
    terms: Terms
    digest: bytes
    budgets: Budgets
    ask_above: float | None
    at_once: int
    most_characters: int
    ahead: int = 0


class Job:
    """One map; made and used on one event loop.

    Args:
        plan: what is asked.
        asker: gets the answers.
        store: keeps them.
        sink: takes what becomes of each row.
        ask_person: returns one of `budgets.CHOICES`, or why nobody could be asked.

    Attributes:
        progress: what is done so far.
        stopped: why it ended early; "" where it did not.
    """

    def __init__(
        self,
        plan: Plan,
        asker: Asker,
        store: AnswerStore,
        sink: Sink,
        ask_person: Callable[[Quote], Awaitable[str]],
    ) -> None:
        self.plan, self.asker = plan, asker
        self._store, self._sink, self._ask_person = store, sink, ask_person
        self.progress = Progress(plan.source.count)
        self.stopped = ""
        self._failure: FatalError | None = None
        self._unread: FatalError | None = None  # ends the map after the rows before it
        self._digest = digest_of(plan.digest)
        self._queue: asyncio.Queue[Asked | None]
        self._queue = asyncio.Queue((plan.at_once + plan.ahead) * AHEAD)
        self._pending: dict[bytes, list[int]] = {}  # the rows that wait for each answer
        self._sampled: frozenset[int] = frozenset()
        self._left_out: set[int] = set()  # rows chosen for the sample that were sent earlier
        self._shown: dict[int, int] = {}  # a bit for each kept answer whose cost a row has shown
        self._fresh: dict[bytes, bytes] = {}  # answers that came while a batch was read
        # Tokens and USD: of the first questions, as rows after the sample cost, and of the first
        # kept answers.
        self._paid: list[tuple[int, float]] = []
        self._kept_costs: list[tuple[int, float]] = []
        self._limit = plan.ask_above
        self._rows = _numbered(plan)
        self._asking: set[asyncio.Task[Any]] = set()  # the workers that wait for an answer
        self._reading: asyncio.Future[Any] | None = None  # see `_unless_stopped`
        self._settled, self._freed, self._gate = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._gate.set()

    @property
    def price_share(self) -> float:
        """The cost of a row after the sample as a share of the cost of one that is asked now."""
        return 1.0

    def state(self) -> str:
        """Return the present speed as text for people: requests at once, and what limits them."""
        pace = self.asker.pace()
        if self.stopped:
            return f"waits up to {GRACE:g} seconds for {pace.in_flight:,} answers under way"
        limit = f", limited by {pace.limit}" if pace.limit else ""
        by = f" by {pace.workers:,} worker{'s' * (pace.workers > 1)}" if pace.workers else ""
        return f"{pace.in_flight:,} of {pace.allowed:,} requests at once{by}{limit}"

    # -- control -----------------------------------------------------------------------------------

    def stop(self, reason: str = BY_PERSON) -> None:
        """Ask nothing more, and wait some seconds for the requests in flight."""
        if not self.stopped:
            self.stopped = encodable(reason).removesuffix(".")  # it stands within sentences
            self._sink.stopped = self.stopped
            self.asker.stop()
            asyncio.get_running_loop().call_later(GRACE, self._give_up)
            if self._reading is not None:
                self._reading.cancel()
        for event in (self._gate, self._freed, self._sink.freed):
            event.set()

    def _give_up(self) -> None:
        for worker in self._asking:
            worker.cancel(GIVEN_UP)

    def pause(self) -> None:
        """Ask nothing until `go_on`."""
        if not self.stopped:
            self._gate.clear()

    def go_on(self) -> None:
        """Ask again after `pause`."""
        self._gate.set()

    @property
    def is_paused(self) -> bool:
        """Whether the map is paused until `go_on`."""
        return not self._gate.is_set()

    # -- a run -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask about all rows: a sample first, where the rest could cost too much.

        Raises:
            FatalError: no row could be asked about; the sentence says why.
        """
        with self._in_time():
            await self._sample()
            if not self.stopped:
                await self._run(self._rows)
            if self._unread is not None:
                self._fail(self._unread)
        self.progress.ended = time.monotonic()
        if self._failure is not None and not self.progress.done - self.progress.failed:
            raise self._failure

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Stop at the deadline, where there is one and the map has not ended before."""
        budgets, loop = self.plan.budgets, asyncio.get_running_loop()
        if budgets.deadline is None:
            yield
            return
        late = budgets.deadline - (time.monotonic() - budgets.began)
        timer = loop.call_later(max(late, 0), self.stop, budgets.passed)
        try:
            yield
        finally:
            timer.cancel()  # which would hold all the map's rows until then

    async def _sample(self) -> None:
        """Ask about some rows, and the person whether to go on where all cost too much.

        Where that has not told what all will cost, and where it was wrong, the person is asked once
        that much is spent.
        """
        source, limit, budgets = self.plan.source, self._limit, self.plan.budgets
        if not isinstance(source, Held) or source.count <= SAMPLE:
            return
        decided = (limit, budgets.max_cost, budgets.max_tokens, budgets.max_errors)
        if all(each is None for each in decided):
            return
        chosen = sorted(random.Random(source.count).sample(range(source.count), SAMPLE))
        await self._ask_sample(chosen, partial(source.each, chosen, self.plan.prompt.names))
        if limit is None or self.progress.unpriced or self.stopped or not self._known():
            return
        if self._quote(source.count, 1.0, limit).cost > limit:
            # Of the others the answers were kept, or are those of equal rows.
            share = await self._unless_stopped(self._share, source) or 0.0
            quote = self._quote(source.count, share, limit)
            if share and quote.cost > limit:
                self._limit = None
                await self._put(quote)

    async def _ask_sample(self, chosen: Sequence[int], read: Callable[[], list[Row]]) -> None:
        """Ask about the rows of a sample, which are then asked no more."""

        def batches() -> Iterator[tuple[Sequence[int], list[Row]]]:
            yield chosen, read()  # on the thread of its own that takes it

        limit, self._limit = self._limit, None  # the person is asked once, after the whole sample
        await self._run(batches())
        self._limit = limit
        self._sampled = frozenset(chosen) - self._left_out

    def _known(self) -> Sequence[tuple[int, float]]:
        """Return tokens and USD of questions, by which those of others are reckoned.

        Where none was asked, it is what the kept answers took, perhaps at the lower price already.
        """
        return self._paid or self._kept_costs

    def _quote(self, rows: int, share: float, limit: float) -> Quote:
        """Return what a map will cost if this share of the rows after the sample is asked."""
        rest = round((rows - len(self._sampled)) * share)
        seconds = self._seconds_for(len(self._sampled) + rest)
        return quote_of(self._known(), self.progress, rows, rest, seconds, limit)

    def _so_far(self) -> tuple[int, int, float]:
        """Return how many rows are done, and the tokens and USD that they took."""
        return self.progress.done, self.progress.tokens, self.progress.cost

    def _passes_limit(self) -> bool:
        """Return whether the rows so far cost more than the person was asked about."""
        return self._limit is not None and self._so_far()[2] > self._limit

    async def _put_so_far(self) -> None:
        """Ask the person by the rows so far: what all will cost, where their number is known."""
        limit, self._limit = self._limit, None
        assert limit is not None  # see `_passes_limit`
        total, (rows, tokens, cost) = self.progress.total, self._so_far()
        if total is None or not rows:
            await self._put(Quote(None, cost, cost, cost, tokens, None, limit))
            return
        cost *= total / rows
        await self._put(Quote(total, cost, cost, cost, round(tokens * total / rows), None, limit))

    def _share(self, source: Held) -> float:
        """Return the share of the rows after the sample that must be asked; waits for the disk.

        Of many rows some are looked at. Equal rows are the more frequent the more rows there are,
        so that a sample of 50 does not tell of them.
        """
        others = sorted(set(range(source.count)) - self._sampled)
        if len(others) > LOOKED_AT:
            others = sorted(random.Random(source.count).sample(others, LOOKED_AT))
        asked = set[bytes]()
        for start in range(0, len(others), BATCH):
            if self.stopped:
                break
            positions = others[start : start + BATCH]
            entries, found = self._entries(
                positions, source.each(positions, self.plan.prompt.names)
            )
            asked.update(key for _, key, _, error, _ in entries if not error and key not in found)
        return len(asked) / max(len(others), 1)

    def _seconds_for(self, count: int) -> float | None:
        """Return how long `count` rows will take, by the sample; None where that says nothing."""
        if not self._paid:
            return None
        # All of the sample went at once, so one after the other its time holds for each.
        return self.progress.seconds * (count - SAMPLE) / self.plan.at_once

    async def _put(self, quote: Quote) -> None:
        """Ask the person whether to go on; `go_on` and `stop` answer too."""
        self.pause()
        asking = asyncio.ensure_future(self._ask_person(quote))
        released = asyncio.ensure_future(self._gate.wait())
        try:
            await asyncio.wait({asking, released}, return_when=asyncio.FIRST_COMPLETED)
            decision = asking.result() if asking.done() else GO_ON
        finally:
            asking.cancel()
            released.cancel()
        if decision != GO_ON:
            self.stop(decision if decision not in CHOICES else BY_PERSON)
        self.go_on()

    async def _run(self, batches: Iterator[tuple[Sequence[int], list[Row]]]) -> None:
        """Ask about the rows of some batches, and wait until all answers are written."""
        async with asyncio.TaskGroup() as tasks:
            count = self.plan.at_once + self.plan.ahead
            workers = [tasks.create_task(self._work()) for _ in range(count)]
            try:
                await self._read(batches)
            except FatalError as error:
                self._fail(error)
            for _ in workers:
                await self._queue.put(None)
        while self._pending:
            self._settled.clear()
            await self._settled.wait()

    def _fail(self, error: FatalError) -> None:
        """End the map with an error that all rows share."""
        self._failure = self._failure or error
        self.stop(short_message(error))

    # -- reading -----------------------------------------------------------------------------------

    async def _read(self, batches: Iterator[tuple[Sequence[int], list[Row]]]) -> None:
        """Put the questions of all batches into the queue."""
        while await self._may_read():
            self._fresh.clear()
            batch, found = await self._unless_stopped(self._next, batches) or ((), {})
            if not batch:
                break
            if self._sampled:
                batch = [each for each in batch if each[0] not in self._sampled]
            await self._enter(batch, found)

    async def _unless_stopped(self, read: Callable[..., Read], *arguments: object) -> Read | None:
        """Read rows on a thread; return None where the map ends before, and leave the thread alone.

        What the rows come from may take any time: the thread is none of a pool, for which Python
        waits when it exits.
        """
        if self.stopped:
            return None
        result: Future[Read] = Future()
        result.set_running_or_notify_cancel()  # so that it takes rows that come too late
        self._reading = asyncio.wrap_future(result)
        function = partial(copy_context().run, read, *arguments)
        Thread(target=_call, args=(function, result), name="agent-rows-read", daemon=True).start()
        try:
            await asyncio.wait([self._reading])
        finally:
            self._reading.cancel()
        return None if self._reading.cancelled() else self._reading.result()

    async def _may_read(self) -> bool:
        """Wait for room for more rows; return False where the map has ended.

        Raises:
            FatalError: what became of earlier rows cannot be written.
        """
        while not (self._sink.has_room() or self.stopped):
            self._sink.freed.clear()
            await self._sink.freed.wait()
        return not self.stopped

    def _next(
        self, batches: Iterator[tuple[Sequence[int], list[Row]]]
    ) -> tuple[list[Entry], Mapping[bytes, Kept]]:
        """Return the questions of the next batch, and kept answers; on a thread, for its time."""
        try:
            positions, rows = next(batches, ((), []))
        except FatalError as error:
            self._unread = error
        except BaseException as error:  # of the generator or library that the rows come from
            self._unread = FatalError(NOT_READ.format(error=typed_message(error)))
            self._unread.__cause__ = error
        else:
            return self._entries(positions, rows)
        return [], {}

    def _entries(
        self, positions: Sequence[int], rows: Sequence[Row]
    ) -> tuple[list[Entry], Mapping[bytes, Kept]]:
        """Return the questions of some rows, and the answers to them that were kept."""
        prompt, terms, most = self.plan.prompt, self._digest, self.plan.most_characters
        batch = [
            asked_row(position, row, prompt, terms, most)
            for position, row in zip(positions, rows, strict=True)
        ]
        return batch, self._store.find([key for _, key, _, error, _ in batch if not error])

    async def _enter(self, batch: Sequence[Entry], found: Mapping[bytes, Kept]) -> None:
        """Queue what must be asked; rows that ask the same as others wait for their answer."""
        for entry in batch:
            position, key, _, error, _ = entry
            if (kept := found.get(key)) is not None:
                self._hand_on(position, self._outcome_of(kept), "")
            elif error:
                self._hand_on(position, Outcome(None, error), BAD_ROW)
            elif (waiting := self._pending.get(key)) is not None:
                waiting.append(position)
            elif (fresh := self._fresh.get(key)) is not None:
                self.progress.repeated += 1
                self._hand_on(position, Outcome(fresh), "")
            else:
                self._pending[key] = [position]
                await self._queue.put(Asked._make(entry))

    def _outcome_of(self, kept: Kept) -> Plain:
        """Return a kept answer as an outcome: with what it took, where no other row shows that."""
        _, answer, tokens, cost, number = kept
        if cost is not None and len(self._kept_costs) < SAMPLE:
            self._kept_costs.append((tokens, cost))
        place, bit = number >> 6, 1 << (number & 63)
        shown = self._shown.get(place, 0)
        if number > self._store.newest or shown & bit:
            self.progress.repeated += 1
            return Outcome(answer)
        self._shown[place] = shown | bit
        self.progress.kept += 1
        return answer, None, tokens, cost

    # -- asking ------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Ask one question after the other."""
        progress, worker = self.progress, asyncio.current_task()
        assert worker is not None  # this is a coroutine
        while (asked := await self._queue.get()) is not None:
            if not await self._may_ask():
                self._leave(asked.key)
                continue
            progress.in_flight += 1
            answer, checked = await self._ask(worker, asked)
            progress.in_flight -= 1
            self._freed.set()
            if answer is None:
                self._leave(asked.key)
                continue
            self._count(answer)
            self._receive(asked.key, answer, checked)

    def _must_wait(self) -> bool:
        """Return whether the answers under way decide if one more question is allowed."""
        return self.plan.budgets.must_wait(self.progress)

    async def _ask_in_time(
        self, worker: asyncio.Task[Any], question: RowQuestion
    ) -> RowAnswer | None:
        """Return the answer to a question, None for one that was not sent before the map's end.

        Some time after the end it is waited for no longer.
        """
        self._asking.add(worker)
        try:
            answer = await self.asker.ask(question)
        except NotSent:
            return None
        except FatalError as error:
            self._fail(error)
            return RowAnswer(error=short_message(error), kind="no answer")
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (GIVEN_UP,):
                raise
            answer = RowAnswer(kind=GIVEN_UP)
        finally:
            self._asking.discard(worker)
        if answer.kind == GIVEN_UP:
            worker.uncancel()
            self.progress.unheard += 1
            return replace(answer, error=f"{GIVEN_UP}: {self.stopped}")
        return answer

    async def _may_ask(self) -> bool:
        """Wait until one more question is allowed; return False when none will be."""
        budgets, progress = self.plan.budgets, self.progress
        while not self.stopped:
            if self.is_paused:
                await self._gate.wait()
            elif reason := budgets.reached(progress):
                self.stop(reason)
            elif self._passes_limit():
                await self._put_so_far()
            elif self._must_wait():
                self._freed.clear()
                await self._freed.wait()
            else:
                return True
        return False

    async def _ask(self, worker: asyncio.Task[Any], asked: Asked) -> tuple[RowAnswer | None, bytes]:
        """Return an answer, and its checked value as JSON; an unfit one is asked for once more."""
        question = self._question(asked)
        answer = await self._ask_in_time(worker, question)
        if answer is None or answer.error:
            return answer, b""
        try:
            return answer, self._value(answer)
        except RespondToModel as problem:
            repair = REPAIR.format(problems=full_message(problem))
            items = (*question.items, AssistantMessage(answer.text), UserMessage(repair))
        except FatalError as failure:
            return replace(answer, error=short_message(failure), kind="validator"), b""
        second = None
        if not self.stopped:
            second = await self._ask_in_time(worker, replace(question, items=items))
        if second is None:
            unfit = NOT_AGAIN.format(reason=self.stopped)
            return replace(answer, error=unfit, kind="does not fit"), b""
        return self._with_value(_sum(answer, second))

    def _with_value(self, answer: RowAnswer) -> tuple[RowAnswer, bytes]:
        """Return an answer, and its checked value as JSON; one that does not fit is an error."""
        try:
            return answer, b"" if answer.error else self._value(answer)
        except RespondToModel as problem:
            unfit = self.plan.columns.failure(full_message(problem))
            return replace(answer, error=unfit, kind="does not fit"), b""
        except FatalError as failure:
            return replace(answer, error=short_message(failure), kind="validator"), b""

    def _value(self, answer: RowAnswer) -> bytes:
        """Return the value of an answer as JSON.

        Raises:
            RespondToModel: it does not fit.
            FatalError: the code of the type itself failed.
        """
        try:
            return self.plan.columns.read(answer.text)
        except (RespondToModel, FatalError):
            raise
        except BaseException as error:  # a validator or serializer may also call `sys.exit()`
            raise FatalError(NOT_CHECKED.format(error=typed_message(error))) from error

    def _question(self, asked: Asked) -> RowQuestion:
        items = () if asked.place else (UserMessage(asked.content),)
        return RowQuestion(asked.key.hex(), items, self.plan.terms, asked.place)

    def _count(self, answer: RowAnswer) -> None:
        progress, cost = self.progress, answer.spent
        progress.asked += 1
        progress.answered += answer.error is None
        progress.paid += bool(answer.tokens or cost)
        progress.usage += answer.usage
        progress.cost += cost or 0.0
        progress.unpriced += cost is None
        # A question that failed without tokens tells of no price.
        if answer.tokens and len(self._paid) < SAMPLE:
            self._paid.append((answer.tokens, (cost or 0.0) * self.price_share))

    def _receive(self, key: bytes, answer: RowAnswer, checked: bytes) -> None:
        """Keep an answer, after which it counts; an error counts at once."""
        if answer.error is not None:
            outcome = Outcome(None, answer.error, answer.tokens, answer.spent)
            self._settle(key, outcome, answer.kind)
            return
        self._store.keep(key, Stored(checked, answer.tokens, answer.cost), self._kept)

    def _kept(self, key: bytes, stored: Stored, error: Exception | None) -> None:
        if error is not None:
            self.stop(NOT_KEPT.format(error=short_message(error)))
        self._settle(key, Outcome(stored.answer, None, stored.tokens, stored.cost))

    def _leave(self, key: bytes) -> None:
        """Leave the rows of a question unasked, since the map has ended."""
        outcome = not_asked(self.stopped)
        for position in self._pending.pop(key):
            self.progress.unasked += 1
            self._sink.put(position, outcome)
        if not self._pending:
            self._settled.set()

    # -- handing on --------------------------------------------------------------------------------

    def _settle(self, key: bytes, outcome: Outcome, kind: str = "") -> None:
        """Hand an outcome on for all rows that wait for it; the first shows what it took."""
        first, *others = self._pending.pop(key)
        if outcome.answer is not None:
            self._fresh[key] = outcome.answer
        self._hand_on(first, outcome, kind)
        for position in others:
            self.progress.repeated += outcome.error is None
            self._hand_on(position, Outcome(outcome.answer, outcome.error), kind)
        if not self._pending:
            self._settled.set()

    def _hand_on(self, position: int, outcome: Plain, kind: str) -> None:
        self.progress.done += 1
        answer, error, tokens, cost = outcome
        if error is not None:
            error = encodable(error)  # it may quote a path or a value
            outcome = answer, error, tokens, cost
            self.progress.fail(kind or "error", error)
        self._sink.put(position, outcome)


def _call(function: Callable[[], Read], result: "Future[Read]") -> None:
    """Put what a function returns or raises into `result`."""
    try:
        result.set_result(function())
    except BaseException as error:
        result.set_exception(error)


def _numbered(plan: Plan) -> Iterator[tuple[Sequence[int], list[Row]]]:
    """Yield the positions and rows of all batches that have any."""
    start = 0
    for batch in filter(None, plan.source.batches(plan.prompt.names)):
        yield range(start, start + len(batch)), batch
        start += len(batch)


def _sum(first: RowAnswer, second: RowAnswer) -> RowAnswer:
    """Return the second answer with what both took."""
    costs = (first.spent, second.spent)
    cost = None if None in costs else sum(filter(None, costs))
    return replace(second, usage=first.usage + second.usage, cost=cost)
