"""Runs maps for an agent on its engine, and waits for them on the calling thread.

That thread draws the progress, and answers the question whether a map may cost what it will.
"""

import asyncio
import queue
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, TypeAlias, cast

from agent_magics.dispatch.person_code import marks_own_code, marks_person_code
from agent_magics.engine.channels.requests import Work
from agent_magics.engine.foreground.interrupt import interrupts_call, presses, stoppable
from agent_magics.protocol.checked import plain_number
from agent_magics.protocol.events import ApprovalRequested
from agent_magics.protocol.ops import Answer
from agent_magics.rows.askers.agents import AgentAsker
from agent_magics.rows.askers.models import ModelAsker
from agent_magics.rows.asking import Asker
from agent_magics.rows.batches.api import open_api
from agent_magics.rows.batches.job import BatchJob
from agent_magics.rows.batches.ledger import Ledger
from agent_magics.rows.budgets import GO_ON, SAMPLE_ONLY, STOP, Quote
from agent_magics.rows.engines.choice import source_of
from agent_magics.rows.engines.coordinator import MOST_HELD, Coordinator, Engine
from agent_magics.rows.engines.partition_answers import CollectedPartitions, PartitionFiles
from agent_magics.rows.engines.partition_job import PartitionJob
from agent_magics.rows.engines.worker import Assignment
from agent_magics.rows.garbage import collects_seldom
from agent_magics.rows.job import Job
from agent_magics.rows.outcomes import Collected, Parts
from agent_magics.rows.planning import Asking, MapOptions, Watcher, plan_map
from agent_magics.rows.prompts import Given
from agent_magics.rows.remote.client import RowClient
from agent_magics.rows.remote.limits import limits_of
from agent_magics.rows.result import MapResult
from agent_magics.rows.runs import noted
from agent_magics.rows.store import AnswerStore, finish
from agent_magics.rows.tables.sources import Held

# Seconds that an interrupted map has to write what it has, and between two looks at a map.
_CLEAN_UP, INTERVAL = 3.0, 0.25

REFUSED = "{quote}, and {why}: pass a higher ask_above=..., or None"
UNDER_NEVER = "under approval='never' nobody is asked"
NOBODY = "nobody can be asked here"


class RowMapping:
    """One call of `Agent.map`.

    Args:
        asking: what the agent gives.
        prompt, rows, output, options: as given to `Agent.map`.

    Raises:
        FatalError: one of them is invalid; nothing has been asked.
    """

    def __init__(
        self, asking: Asking, prompt: Given, rows: Any, output: Any, options: MapOptions
    ) -> None:
        options = cast("MapOptions", {name: plain_number(each) for name, each in options.items()})
        self._asking, self._given, self._options = asking, (prompt, output), options
        self._planned = plan_map(asking, prompt, rows, output, options)
        self._ended = threading.Event()

    # -- on the engine's loop ----------------------------------------------------------------------

    async def _run(self, ask: Callable[[Quote], Awaitable[str]], watcher: Watcher) -> MapResult:
        planned, plan = self._planned, self._planned.plan
        async with AsyncExitStack() as open_ones:
            open_ones.callback(self._ended.set)  # after all that is opened below has been closed
            open_ones.enter_context(collects_seldom())
            sink = await asyncio.to_thread(self._sink)  # a URL may take a while
            open_ones.enter_context(sink.reserved())
            asker = await self._asker()
            open_ones.push_async_callback(finish, asker.close)
            store = AnswerStore(planned.cache, plan.terms.model, plan.columns.fits)
            open_ones.push_async_callback(finish, store.close)
            job = Job(plan, asker, store, sink, ask)
            if planned.partitions is not None:
                assert isinstance(asker, Coordinator)  # its workers hold the partitions
                job = PartitionJob(plan, asker, store, sink, ask)
                job.connect(planned.partitions, asker)
            if self._options.get("batch"):
                api = await open_api(self._asking.settings)
                open_ones.push_async_callback(finish, api.close)
                ledger = await asyncio.to_thread(Ledger, store.path)
                job = BatchJob(plan, asker, store, sink, ask)
                job.connect(api, ledger)
            if name := self._options.get("name"):
                await open_ones.enter_async_context(noted(store.path, name, job, planned.asks))
            watcher.begin(job)
            await job.run()
            await sink.close()
        return MapResult(plan.source, sink, job.progress, job.stopped, self._again)

    def _sink(self) -> Collected | Parts | CollectedPartitions:
        planned, into = self._planned, self._options.get("into")
        columns = planned.plan.columns
        if planned.partitions is not None and into is not None:
            return PartitionFiles(into, columns, planned.asks)
        if planned.partitions is not None:
            return CollectedPartitions(columns, planned.partitions)
        if into is not None:
            return Parts(into, columns, planned.asks)
        return Collected(columns, planned.plan.source.count or 0)

    async def _asker(self) -> Asker:
        planned, plan, settings = self._planned, self._planned.plan, self._asking.settings
        at_once = self._options.get("concurrency")
        if planned.runs is not None:
            session, output = self._asking.session, plan.columns.output
            return AgentAsker(session, planned.runs, output, plan.at_once)
        if planned.engine is not None:
            return await self._coordinator(planned.engine, at_once)
        if self._asking.is_live:
            return RowClient(
                settings.wire_api,
                api_key=settings.api_key,
                base_url=settings.base_url,
                concurrency=at_once,
            )
        return ModelAsker(self._asking.models.open(settings), at_once)

    async def _coordinator(self, engine: Engine, at_once: int | None) -> Coordinator:
        """Return what asks through the workers of an engine, which come from now on."""
        plan, source = self._planned.plan, await source_of(self._asking.settings)
        limits = limits_of(source.address, plan.terms.model, source.key)
        workers = await asyncio.to_thread(engine.workers)
        plan.at_once = at_once or min(plan.at_once * max(workers, 1), MOST_HELD)
        plan.ahead = plan.at_once  # see `Worker.room`
        coordinator = Coordinator(engine, Assignment(plan.terms, source), limits, at_once)
        try:
            await coordinator.open()
        except BaseException:
            await coordinator.close()
            raise
        return coordinator

    # -- on the calling thread ---------------------------------------------------------------------

    async def wait(self, watcher: Watcher | None = None) -> MapResult:
        """Run the map, and answer its question on this loop; None is the agent's own watcher."""
        watcher = watcher or self._asking.watcher(False)
        loop = asyncio.get_running_loop()

        async def ask(quote: Quote) -> str:
            work = Work("", "async", partial(self._ask, quote), asyncio.get_running_loop())
            deciding = asyncio.run_coroutine_threadsafe(self._decide(quote, work), loop)
            try:
                return await asyncio.wrap_future(deciding)
            finally:  # as in `wait_sync`
                work.end(lambda: None)

        running = asyncio.wrap_future(self._asking.session.engine.spawn(self._run(ask, watcher)))
        has_result = False
        try:
            while not (await asyncio.wait({running}, timeout=INTERVAL))[0]:
                watcher.draw()
            has_result = running.exception() is None
        except BaseException:
            running.cancel()
            raise
        finally:
            watcher.end(has_result=has_result)
        result: MapResult = running.result()
        return result

    @marks_own_code
    def wait_sync(self, watcher: Watcher | None = None) -> MapResult:
        """Run the map, blocking; also where a loop runs on this thread.

        Raises:
            KeyboardInterrupt: the person interrupted; the run has been stopped.
        """
        watcher = watcher or self._asking.watcher(True)
        asked: _Asked = queue.Queue()

        async def ask(quote: Quote) -> str:
            run = partial(self._ask, quote, blocks=True)
            work = Work("", "sync", run, asyncio.get_running_loop())
            asked.put(work)
            try:
                return _decision(quote, await work.result)
            finally:  # where a deadline or a button has decided, it holds this thread no longer
                work.end(lambda: None)

        pressed, has_result = threading.Event(), False
        with interrupts_call(pressed.set):
            running = self._asking.session.engine.spawn(self._run(ask, watcher))
            running.add_done_callback(lambda _: asked.put(None))
            try:
                self._answer(asked, watcher, pressed)
                has_result = not (pressed.is_set() or running.exception())
            except BaseException:
                running.cancel()
                self._ended.wait(_CLEAN_UP)
                raise
            finally:
                watcher.end(has_result=has_result)
        if pressed.is_set():  # as the run ended: what follows is to stop too
            raise KeyboardInterrupt
        result: MapResult = running.result()
        return result

    def _answer(self, asked: "_Asked", watcher: Watcher, pressed: threading.Event) -> None:
        """Draw and answer the run's questions on this thread until the run has ended.

        Raises:
            KeyboardInterrupt: the person interrupted.
        """
        while not pressed.is_set():
            try:
                work = asked.get(timeout=INTERVAL)
            except queue.Empty:
                watcher.draw()
                continue
            if work is None:
                return
            with _until_decided(work):
                work.finish(work.run())
        raise KeyboardInterrupt

    async def _decide(self, quote: Quote, work: Work) -> str:
        """Ask on this loop; return one of `CHOICES`, or why nobody was asked."""
        answer: Any = ""
        with _until_decided(work):
            answer = work.run()
        return _decision(quote, await answer if isawaitable(answer) else answer)

    @marks_person_code
    def _ask(self, quote: Quote, *, blocks: bool = False) -> Answer | Awaitable[Answer] | str:
        """Ask the person; return the answer, or why nobody is asked."""
        if self._asking.settings.approval == "never":
            return REFUSED.format(quote=quote, why=UNDER_NEVER)
        host = self._asking.host()
        return (host.answer_blocking if blocks else host.answer)(_question(quote))

    def _again(self, rows: Held) -> MapResult:
        """Run the same map over other rows."""
        prompt, output = self._given
        return RowMapping(self._asking, prompt, rows, output, self._options).wait_sync()


def _question(quote: Quote) -> ApprovalRequested:
    return ApprovalRequested(
        question_id=uuid.uuid4().hex[:12],
        call_id="",
        tool="map",
        target=str(quote),
        arguments="",
        reason="answers that are there are kept",
        labels=_CHOICES,
    )


@contextmanager
def _until_decided(work: Work) -> Iterator[None]:
    """Leave the code inside, which asks a question, when that has been decided elsewhere."""
    before = presses()
    try:
        with stoppable(work):
            yield
    except KeyboardInterrupt:
        if presses() > before or not work.is_ended:
            raise  # the person's


def _decision(quote: Quote, answer: Answer | str) -> str:
    """Return one of `CHOICES`, or why nobody was asked."""
    if isinstance(answer, str):
        return answer
    if answer.by == "policy":
        return REFUSED.format(quote=quote, why=NOBODY)
    return _CHOICES.get(answer.decision, SAMPLE_ONLY)


# The questions of the run for the waiting thread; None where it has ended.
_Asked: TypeAlias = queue.Queue[Work | None]
_CHOICES = {"approve": GO_ON, "deny": SAMPLE_ONLY, "abort": STOP}
