"""Runs a map through a provider's batch API: files of requests, sent at once, answered in hours.

What was sent goes on at the provider when the map is stopped or the kernel ends; the next call of
the same map takes it up, instead of sending these rows again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import chain
from statistics import fmean
from typing import Any, Never

from agent_magics.models.faults import Fault
from agent_magics.models.providers.catalog import find_model
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.items import Content, Item, UserMessage
from agent_magics.rows.asking import GIVEN_UP, RowAnswer
from agent_magics.rows.batches.api import Batch, BatchApi, hours_left
from agent_magics.rows.batches.ledger import Ledger, Sent, now
from agent_magics.rows.batches.pack import Pack
from agent_magics.rows.batches.results import FETCHED, Result, fetch_results, read_results
from agent_magics.rows.job import BY_PERSON, NOT_KEPT, SAMPLE, Job
from agent_magics.rows.outcomes import NOT_ASKED, Outcome
from agent_magics.rows.prompts import Entry
from agent_magics.rows.remote.exchange import request_of
from agent_magics.rows.store import Kept, Stored
from agent_magics.rows.tables.sources import Held, Row

# Seconds between two looks at a batch: at first, and at most.
FIRST_LOOK, LONGEST_LOOK = 0.5, 60.0

FAILED = "the provider did not take the batch of this row: {problem}"
UNANSWERED = "the provider's batch has ended ({state}) without an answer to this row"
NOT_WRITTEN = (
    "The files of a batch cannot be written ({error}): make room, or take another file of answers "
    "(cache=...)."
)
SENDING = "another kernel is sending the batch of this row: call the map again when it is done"
GONE = (
    "the provider shows this key no batch {id}, in which this row was sent: use the key that sent "
    "it, or drop it (`%agent map cancel {token}`)"
)
TAKEN = (
    "another kernel has taken in the batch of this row, without an answer to it: call the map again"
)
GOES_ON = "{given_up}: {stopped}; the provider goes on with it, and the same call takes it up"


class BatchJob(Job):
    """A map whose rows go through the batch API; see `Job`, and `connect`."""

    is_direct = False

    def connect(self, api: BatchApi, ledger: Ledger) -> None:
        """Set where the rows are sent, and what keeps that; called once, before `run`."""
        self._api, self._ledger = api, ledger
        self._under_way: set[bytes] = set()  # keys of rows that earlier calls sent
        self._batches: dict[str, Batch] = {}  # as last seen, by token
        self._wake = asyncio.Event()
        self._ended_one = asyncio.Event()
        self._earlier: list[Sent] = []  # what earlier calls sent, with the same terms
        self._packs: set[Pack] = set()  # that were not sent yet

    async def run(self) -> None:
        """See `Job.run`."""
        await self._api.check()
        await asyncio.to_thread(self._ledger.sweep)
        of_map = (self._api.address, self._api.wire.name, self.plan.digest)
        for sent in await asyncio.to_thread(self._ledger.all):
            if (sent.server, sent.wire, sent.map) != of_map:
                continue
            if await self._is_gone(sent):
                await asyncio.to_thread(self._ledger.remove, sent.token)
                continue
            self._earlier.append(sent)
            keys = await asyncio.to_thread(self._ledger.keys, sent.token)
            self._under_way.update(keys)
        try:
            await super().run()
        finally:
            for pack in self._packs:
                pack.close()

    async def _is_gone(self, sent: Sent) -> bool:
        """Return whether the provider has no such batch, and will have none."""
        if sent.state == FETCHED:
            return False
        if await asyncio.to_thread(self._ledger.is_being_sent, sent.token):
            return False
        try:
            batch = await self._api.seen(sent.id, sent.token)
        except FatalError:
            return False  # `_take_up` tells of it
        if batch is not None:
            self._batches[sent.token] = batch
            return False
        # Another key of the person may see a batch that has an id. Whether it is over no clock of
        # ours tells: rows forgotten by one that is ahead would be paid for twice.
        return not sent.id

    def stop(self, reason: str = BY_PERSON) -> None:
        """Stop waiting; batches that were sent go on at the provider."""
        super().stop(reason)
        self._wake.set()

    def state(self) -> str:
        """Return the progress at the provider, as text for people."""
        seen = list(self._batches.values())
        if not seen:
            return "the rows are being written into batches"
        states = ", ".join(dict.fromkeys(each.state.replace("_", " ") for each in seen))
        done = sum(each.completed + each.failed for each in seen)
        rows = sum(each.total for each in seen)
        count = f"{len(seen)} batches" if len(seen) > 1 else "1 batch"
        longest = max(seen, key=lambda each: each.expires_at)
        return (
            f"{count} at the provider: {states}, {done:,} of {rows:,} requests done; "
            f"{hours_left(longest)} more. You may close the kernel: the same call takes it up."
        )

    # -- sending -----------------------------------------------------------------------------------

    @property
    def price_share(self) -> float:
        """The price of the batch API as a share of that of rows that are asked now."""
        if not self.is_direct:
            return 1.0
        card = find_model(self.plan.terms.model)
        return (card and card.batch_share) or 1.0

    def _seconds_for(self, count: int) -> None:
        return None

    async def _sample(self) -> None:
        """Ask a sample directly, where its cost decides how far the map goes; see `Job._sample`.

        Of rows that can be read only once these are the first.
        """
        budgets = self.plan.budgets
        if (self._limit, budgets.max_cost, budgets.max_tokens) == (None, None, None):
            return
        self.is_direct = True
        try:
            if isinstance(self.plan.source, Held):
                await super()._sample()
            elif len(first := await self._unless_stopped(self._read_first) or []) > SAMPLE:
                await self._ask_sample(range(SAMPLE), lambda: first[:SAMPLE])
        finally:
            self.is_direct = False

    def _read_first(self) -> list[Row]:
        """Return the first rows, more than a sample where there are so many; `_rows` keeps them."""
        batches: list[tuple[Sequence[int], list[Row]]] = []
        first: list[Row] = []
        rest = self._rows
        try:
            while len(first) <= SAMPLE and (batch := next(self._rows, None)):
                batches.append(batch)
                first += batch[1]
        except BaseException as error:  # see `_next`, which tells of it after the rows before it
            rest = _failing(error)
        self._rows = chain(batches, rest)
        return first

    def _so_far(self) -> tuple[int, int, float]:
        """See `Job._so_far`; rows in batches, and one more, count as much as is known of others."""
        rows, tokens, cost = super()._so_far()
        if not (known := self._known()):
            return rows, tokens, cost
        more = self.progress.in_flight + 1
        tokens_each, cost_each = (fmean(column) for column in zip(*known, strict=True))
        return rows + more, tokens + round(more * tokens_each), cost + more * cost_each

    def _must_wait(self) -> bool:
        """See `Job._must_wait`; where nothing has told the price yet, the first batch does."""
        is_unknown = self._limit is not None and not self._known()
        return (is_unknown and self.progress.in_flight > 0) or super()._must_wait()

    async def _enter(self, batch: Sequence[Entry], found: Mapping[bytes, Kept]) -> None:
        """See `Job._enter`; a sample leaves out the rows that earlier calls have sent."""
        if self.is_direct:
            left_out = {position for position, key, *_ in batch if key in self._under_way}
            self._left_out |= left_out
            batch = [entry for entry in batch if entry[0] not in left_out]
        await super()._enter(batch, found)

    async def _run(self, batches: Iterator[tuple[Sequence[int], list[Row]]]) -> None:
        if self.is_direct:
            await super()._run(batches)
            return
        async with asyncio.TaskGroup() as tasks:

            def start(work: Coroutine[Any, Any, None]) -> None:
                tasks.create_task(self._ending_on_error(work))

            packing = tasks.create_task(self._pack(start))
            try:
                await self._read(batches)
            except FatalError as error:
                self._fail(error)
            await self._queue.put(None)
            await packing
            for sent in self._earlier:
                start(self._take_up(sent))
        await self._ending_on_error(self._take_kept())
        for key in list(self._pending):  # of what ended on an error, or is taken in elsewhere
            words = NOT_ASKED.format(reason=self.stopped) if self.stopped else TAKEN
            self._settle(key, Outcome(None, str(self._failure or words)), "batch lost")

    async def _take_kept(self) -> None:
        """Hand on the answers that another kernel has taken in meanwhile."""
        found = await asyncio.to_thread(self._store.find, list(self._pending))
        for key, (_, answer, tokens, cost, _) in found.items():
            if key in self._pending:
                self.progress.kept += 1
                self._settle(key, Outcome(answer, None, tokens, cost))

    async def _may_read(self) -> bool:
        """See `Job._may_read`; no room comes before all rows are read, sent and answered."""
        self._sink.has_room()  # raises what could not be written
        return not self.stopped

    async def _ending_on_error(self, work: Coroutine[Any, Any, None]) -> None:
        """Do a part of the map; where it fails, so does the map, in that sentence."""
        try:
            await work
        except FatalError as error:
            self._fail(error)
        except OSError as error:
            self._fail(FatalError(NOT_WRITTEN.format(error=short_message(error))))

    async def _pack(self, start: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        """Write the queued rows into files, and send each file that is full."""
        pack: Pack | None = None
        while (asked := await self._queue.get()) is not None:
            key = asked.key
            if key in self._under_way and not self.stopped:
                continue
            line = self._line(key, asked.content)
            if not self.stopped and self._passes_limit():
                await self._put_so_far()  # `_send` holds back what is not sent until the answer
            if pack is not None and not (pack.has_room(line) and self._fits_budget(pack)):
                start(self._send(pack))
                pack = None
            if self.stopped or (pack is None and not await self._may_ask()):
                self._leave(key)
                continue
            try:
                if pack is None:
                    pack = Pack(await asyncio.to_thread(self._ledger.folder))
                    self._packs.add(pack)
                pack.add(key, line)
            except OSError as error:
                self._fail(FatalError(NOT_WRITTEN.format(error=short_message(error))))
                self._settle(key, Outcome(None, str(self._failure)), "not asked")
                continue
            self.progress.in_flight += 1
        if pack is not None:
            start(self._send(pack))

    def _fits_budget(self, pack: Pack) -> bool:
        """Return whether a batch may grow; where not, its answers decide how far the map goes."""
        return len(pack.keys) < SAMPLE or not self._must_wait()

    def _line(self, key: bytes, content: Content) -> bytes:
        """Return a row's line: the same request body as without a batch."""
        items: tuple[Item, ...] = (UserMessage(content),)
        wire = self._api.wire
        body = wire.body(request_of(self.plan.terms, items), self._api.address)
        head = f'{{"custom_id":"{key.hex()}","method":"POST","url":"/v1{wire.path}","body":'
        return b"%s%s}\n" % (head.encode(), body.replace(b"\n", b" "))

    async def _send(self, pack: Pack) -> None:
        """Send a file of requests, and take in what comes of it."""
        plan, wire = self.plan, self._api.wire.name
        sent = Sent(pack.token, now(), self._api.address, wire, plan.terms.model, plan.digest)
        await self._gate.wait()
        try:
            pack.file.flush()
            if self.stopped:
                self.progress.in_flight -= len(pack.keys)
                for key in pack.keys:
                    self._leave(key)
                return
            await asyncio.to_thread(self._ledger.add, sent, pack.keys)
            batch = await self._begin(pack)
        except (FatalError, OSError) as error:
            failure = FatalError(NOT_WRITTEN.format(error=short_message(error)))
            failure = error if isinstance(error, FatalError) else failure
            self._give_up_batch(pack.keys, str(failure), "batch refused")
            self._fail(failure)
            pack.close()
            # After a passing fault the provider may show it only later.
            if not (isinstance(error, Fault) and error.passing) and await self._is_gone(sent):
                await asyncio.to_thread(self._ledger.remove, pack.token)
            return
        finally:
            pack.close()
            self._packs.discard(pack)
        await self._follow(pack.token, pack.keys, batch)

    async def _begin(self, pack: Pack) -> Batch:
        """Upload a file and begin its batch; where too much waits already, after another's end."""
        file_id = await self._api.upload(pack.path)
        while True:
            before, ended = self._running(), self._ended()
            batch = await self._api.create(file_id, pack.token)
            await self._see(pack.token, batch)
            while not batch.has_ended and batch.state == "validating" and not self.stopped:
                await self._sleep(FIRST_LOOK)
                batch = await self._api.state(batch.id)
                await self._see(pack.token, batch)
            others = self._running()
            if not batch.is_full or self.stopped:
                return batch
            if before - others or self._ended() - ended - {pack.token}:
                continue  # another one has ended meanwhile
            if not others:
                return batch
            self._ended_one.clear()
            waits = (self._ended_one.wait(), self._wake.wait())
            tasks = [asyncio.ensure_future(each) for each in waits]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()

    def _running(self) -> set[str]:
        """Return which batches have not ended."""
        return {token for token, batch in self._batches.items() if not batch.has_ended}

    def _ended(self) -> set[str]:
        return self._batches.keys() - self._running()

    async def _take_up(self, sent: Sent) -> None:
        """Go on with a batch that an earlier call sent."""
        keys = await asyncio.to_thread(self._ledger.keys, sent.token)
        if not any(key in self._pending for key in keys):  # of another prompt, or other rows
            seen = self._batches.pop(sent.token, None)
            self._ended_one.set()
            has_ended = sent.state == FETCHED or (seen is not None and seen.has_ended)
            if has_ended and await asyncio.to_thread(self._ledger.is_answered, sent.token):
                await asyncio.to_thread(self._ledger.remove, sent.token)
            return
        self.progress.in_flight += len(keys)
        batch = self._batches.get(sent.token)
        try:
            if sent.state == FETCHED:
                batch = Batch(sent.id, "completed")
            elif batch is None and (batch := await self._api.seen(sent.id, sent.token)):
                await self._see(sent.token, batch)
        except FatalError as error:
            self._give_up_batch(keys, short_message(error), "batch lost")
            return
        if batch is None:
            gone = GONE.format(id=sent.id, token=sent.token[:8])
            self._give_up_batch(keys, gone if sent.id else SENDING, "batch lost")
            return
        await self._follow(sent.token, keys, batch)

    # -- waiting -----------------------------------------------------------------------------------

    async def _follow(self, token: str, keys: Sequence[bytes], batch: Batch) -> None:
        """Wait for the end of a batch, and take its results in."""
        look = FIRST_LOOK
        while not batch.has_ended and not self.stopped:
            await self._sleep(look)
            look = min(look * 1.5, LONGEST_LOOK)
            try:
                batch = await self._api.state(batch.id)
            except FatalError as fault:
                if not (isinstance(fault, Fault) and fault.passing):
                    self._fail(fault)
                continue
            await self._see(token, batch)
        if not batch.has_ended:
            words = GOES_ON.format(given_up=GIVEN_UP, stopped=self.stopped)
            self._give_up_batch(keys, words, "not waited for")
            return
        missing = set(keys)
        try:
            await self._take_in(token, missing, batch)
        except (FatalError, OSError) as error:
            self._give_up_batch(list(missing), short_message(error), "batch lost")
        self._ended_one.set()

    async def _see(self, token: str, batch: Batch) -> None:
        self._batches[token] = batch
        update = self._ledger.update
        await asyncio.to_thread(update, token, batch.id, batch.state, batch.completed)

    async def _sleep(self, seconds: float) -> None:
        """Wait, or until the map is stopped."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    # -- taking in ---------------------------------------------------------------------------------

    async def _take_in(self, token: str, missing: set[bytes], batch: Batch) -> None:
        """Keep all answers of a batch, then forget it; those that came are no longer `missing`.

        Raises:
            FatalError: the results cannot be fetched, or not kept.
            OSError: they cannot be written or read.
        """
        paths = await fetch_results(self._api, self._ledger, token, batch)
        for path in paths:
            results = read_results(path, self._api.wire, self.plan.terms, self._api.address)
            while group := await asyncio.to_thread(next, results, None):
                await self._receive_group(group, missing)
        await self._take_kept()
        problem = FAILED.format(problem=batch.problem or "it does not say why")
        is_refused = batch.state == "failed"
        words = problem if is_refused else UNANSWERED.format(state=batch.state)
        self._give_up_batch(list(missing), words, f"batch {batch.state}")
        missing.clear()
        if is_refused and not batch.files:
            self._fail(FatalError(problem))
        await asyncio.to_thread(self._ledger.remove, token)

    async def _receive_group(self, group: Sequence[Result], missing: set[bytes]) -> None:
        """Take in some results; return when they are written.

        Raises:
            FatalError: they cannot be kept.
        """
        written = asyncio.Event()
        kept = [each for each in map(self._checked, group, [missing] * len(group)) if each]
        left, problem = len(kept), ""

        def then(key: bytes, stored: Stored, error: Exception | None) -> None:
            nonlocal left, problem
            left -= 1
            if error is not None:
                problem = NOT_KEPT.format(error=short_message(error))
            if key in self._pending:
                self._settle(key, Outcome(stored.answer, None, stored.tokens, stored.cost))
            if not left:
                written.set()

        for key, stored in kept:
            self._store.keep(key, stored, then)
        if kept:
            await written.wait()
        if problem:
            self.stop(problem)
            raise FatalError(problem)

    def _checked(self, result: Result, missing: set[bytes]) -> tuple[bytes, Stored] | None:
        """Count a result, and return what is to be kept of it; an error is handed on at once."""
        key, answer = result
        if key not in missing:
            return None  # not a row of this batch, or a second answer to one
        missing.discard(key)
        answer, checked = self._with_value(answer)
        self.progress.in_flight -= 1
        self._freed.set()
        if key in self._pending:
            self._count(answer)
        if answer.error is None:
            return key, Stored(checked, answer.tokens, answer.cost)
        if key in self._pending:
            error = self._api.without_key(answer.error)
            self._settle(key, Outcome(None, error, answer.tokens, answer.spent), answer.kind)
        return None

    def _give_up_batch(self, keys: Sequence[bytes], error: str, kind: str) -> None:
        """Hand an error on for rows of a batch."""
        for key in keys:
            self.progress.in_flight -= 1
            if key in self._pending:
                if kind not in ("not waited for", "batch lost"):
                    self._count(RowAnswer(error=error, kind=kind, cost=0.0))
                self._settle(key, Outcome(None, error), kind)
        self._freed.set()


def _failing(error: BaseException) -> Iterator[Never]:
    """Raise the error of an iterator where its next value would be."""
    yield from ()
    raise error
