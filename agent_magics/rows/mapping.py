"""Starts maps for an agent, and waits for them on the calling thread, which answers their question.

`RowMapping` makes a `Job` of what a caller gave, and runs it on the engine.
"""

import asyncio
import hashlib
import json
import queue
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

from agent_magics.config_files.places import state_folder
from agent_magics.dispatch.person_code import marks_own_code
from agent_magics.engine.foreground.host import Host
from agent_magics.engine.foreground.interrupt import interrupts_call
from agent_magics.engine.session import Session
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.model_clients import ModelClients
from agent_magics.models.providers.catalog import find_model
from agent_magics.models.providers.endpoints import server_address
from agent_magics.protocol.checked import check
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import ApprovalRequested
from agent_magics.protocol.ops import Answer
from agent_magics.rows.askers import agents
from agent_magics.rows.askers.agents import AgentAsker, described
from agent_magics.rows.askers.models import AT_ONCE, ModelAsker
from agent_magics.rows.asking import Asker, Terms
from agent_magics.rows.batches.api import open_api
from agent_magics.rows.batches.job import BatchJob
from agent_magics.rows.batches.ledger import Ledger
from agent_magics.rows.budgets import GO_ON, SAMPLE_ONLY, STOP, Budgets, Quote, is_amount
from agent_magics.rows.engines.choice import check_portable, engine_of, partitions_of, source_of
from agent_magics.rows.engines.coordinator import MOST_HELD, Coordinator, Engine
from agent_magics.rows.engines.partition_answers import CollectedPartitions, PartitionFiles
from agent_magics.rows.engines.partition_job import PartitionJob
from agent_magics.rows.engines.worker import Assignment
from agent_magics.rows.garbage import collects_seldom
from agent_magics.rows.job import Job, Plan
from agent_magics.rows.outcomes import Collected, Parts
from agent_magics.rows.prompts import Given, read_prompt
from agent_magics.rows.remote.client import CONCURRENCY, RowClient
from agent_magics.rows.remote.limits import limits_of
from agent_magics.rows.result import MapResult
from agent_magics.rows.runs import noted
from agent_magics.rows.store import AnswerStore
from agent_magics.rows.tables.columns import AnswerColumns
from agent_magics.rows.tables.files import FileJudge
from agent_magics.rows.tables.sources import Held, open_source
from agent_magics.text.brief import meant

# USD above which a person is asked before all rows are.
ASK_ABOVE = 1.0
# Characters of a prompt: about four are a token, eight at the very most.
_CHARACTERS_PER_TOKEN, _MOST_CHARACTERS = 8, 4 << 20
# Seconds that an interrupted map has to write what it has, and between two looks at a map.
_CLEAN_UP, INTERVAL = 3.0, 0.25

REFUSED = "{quote}, and {why}: pass a higher ask_above=..., or None"
UNDER_NEVER = "under approval='never' nobody is asked"
NOBODY = "nobody can be asked here"
NO_BATCH = (
    "batch=True needs a server and the cache of answers, in which it keeps what was sent: leave "
    "out cache=False, or batch=True (recordings and a program's own model have no batch API)."
)
NO_NAME = (
    "name= needs a server and the cache of answers, in which it is kept: leave out cache=False, or "
    "name= (answers of recordings and of a program's own model are not kept)."
)
NO_TOOLS = "Rows with tools= are agent runs, of which {what} knows nothing: leave one of them out."
MOST_AT_ONCE = 10_000
AT_ONCE_TAKES = "concurrency={given!r}: it takes a number from 1 to {most:,}, or None."
REQUESTS = "requests={given!r}: it takes a number of requests of each row from 2, with tools=."


class MapOptions(TypedDict, total=False):
    """The options of a map; see `Agent.map`."""

    into: str | Path | None
    concurrency: int | None
    max_cost: float | None
    max_tokens: int | None
    max_errors: float | None
    deadline: float | None
    ask_above: float | None
    cache: bool | str | Path
    batch: bool
    engine: Any
    name: str
    tools: Any
    requests: int


def cache_file() -> Path:
    """Return the file in which answers are kept for this user."""
    return state_folder() / "answers.sqlite"


class Watcher:
    """Shows the progress of a map; this base class shows nothing."""

    def begin(self, job: Job) -> None:
        """Take the job that is to be shown; called on the engine's thread."""

    def draw(self) -> None:
        """Show the progress; called again and again on the thread that waits for the map."""

    def end(self, *, has_result: bool) -> None:
        """Show how the map ended; called on the thread that waited."""


@dataclass(frozen=True, slots=True)
class Asking:
    """The parts of an agent that its maps use.

    Attributes:
        settings: its settings.
        models: opens its model.
        host: returns what asks the person.
        session: the agent's; its engine runs the job.
        judge: returns why a file is kept from the model, or "".
        turn_config: returns the configuration of runs with these tools; None stands for its own.
        watcher: makes what shows the progress of a map, which may block the calling thread.
    """

    settings: Settings
    models: ModelClients
    host: Callable[[], Host]
    session: Session
    judge: FileJudge
    turn_config: Callable[[Any], TurnConfig]
    watcher: Callable[[bool], Watcher] = lambda blocks: Watcher()


def _check_types(prompt: Given, options: MapOptions) -> None:
    """Refuse options that are not known, and types that no other check refuses."""
    kinds = MapOptions.__annotations__
    unknown = set(options) - set(kinds)
    if unknown:
        raise FatalError(f"map has no option {min(unknown)!r}; {meant(min(unknown), kinds)}")
    check("map: prompt", prompt, Given)
    for name in {"into", "cache", "name", "batch"} & set(options):
        check(f"map: {name}", options.get(name), kinds[name])
    if options.get("into") == "":
        raise FatalError("into='': it takes a folder or a URL, or None.")


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
        settings = asking.settings
        self._asking, self._given, self._options = asking, (prompt, output), options
        self._ended = threading.Event()
        _check_types(prompt, options)
        columns = AnswerColumns(output)
        terms = _terms(settings, columns)
        self._engine = self._engine_of(options.get("engine"), terms.model)
        self._partitions = partitions_of(rows, self._engine)
        hold = options.get("into") is None and self._partitions is None
        source = (
            rows if isinstance(rows, Held) else open_source(rows, hold=hold, judge=asking.judge)
        )
        if self._partitions is not None:
            source = replace(source, library="dask")
        self._turn_config, self._requests = self._agent_setup(options)
        self._reads_only = options.get("tools") is True
        asked = None
        if self._turn_config is not None:
            asked = described(self._turn_config, self._requests, reads_only=self._reads_only)
        digest = _digest(settings, terms, columns, asked)
        concurrency = options.get("concurrency")
        is_number = type(concurrency) is int and 0 < concurrency <= MOST_AT_ONCE
        if not (concurrency is None or is_number):
            raise FatalError(AT_ONCE_TAKES.format(given=concurrency, most=MOST_AT_ONCE))
        ask_above = options.get("ask_above", ASK_ABOVE)
        if not (ask_above is None or is_amount(ask_above, least=0)):
            raise FatalError(f"ask_above={ask_above!r}: it takes USD from 0, or None.")
        if options.get("batch") and self._cache_path() is None:
            raise FatalError(NO_BATCH)
        if options.get("name") and self._cache_path() is None:
            raise FatalError(NO_NAME)
        if options.get("batch") and options.get("engine") is not None:
            raise FatalError("batch=True sends files, and no worker asks: leave out engine=.")
        # Without rows a list or file has no columns either.
        columns_there = source.columns if source.columns or source.count != 0 else None
        card = find_model(settings.model)
        window = settings.context_window or (card and card.context_window) or 0
        self.plan = Plan(
            source,
            read_prompt(prompt, columns_there, asking.judge),
            columns,
            replace(terms, name=digest.hex()[:16]),
            digest,
            Budgets(
                options.get("max_cost", settings.max_cost),
                options.get("max_tokens", settings.max_tokens),
                options.get("max_errors"),
                options.get("deadline"),
            ),
            ask_above,
            concurrency or self._at_once,
            window * _CHARACTERS_PER_TOKEN or _MOST_CHARACTERS,
        )

    def _agent_setup(self, options: MapOptions) -> tuple[TurnConfig | None, int]:
        """Return the configuration of the runs of rows with tools, and the requests of each."""
        tools, requests = options.get("tools"), options.get("requests", agents.REQUESTS)
        if not tools:
            if "requests" in options:
                raise FatalError(REQUESTS.format(given=requests))
            return None, 0
        for name in ("engine", "batch"):
            if options.get(name):
                raise FatalError(NO_TOOLS.format(what=f"{name}="))
        if isinstance(requests, bool) or not (isinstance(requests, int) and requests >= 2):
            raise FatalError(REQUESTS.format(given=requests))
        return self._asking.turn_config(None if tools is True else tools), requests

    @property
    def _asks(self) -> bytes:
        """A digest of what is asked, but for the rows, and the code where a function makes it."""
        template = self._given[0] if isinstance(self._given[0], str) else ""
        return hashlib.blake2b(template.encode(), digest_size=16, key=self.plan.digest).digest()

    @property
    def _at_once(self) -> int:
        if self._turn_config is not None:
            return agents.AT_ONCE
        return CONCURRENCY if self._is_live else AT_ONCE

    def _engine_of(self, given: Any, model: str) -> Engine | None:
        if given is None:
            return None
        check_portable(self._asking.settings, self._asking.models)
        return engine_of(given, f"agent.map {self._options.get('name') or model}")

    # -- on the engine's loop ----------------------------------------------------------------------

    async def _run(self, ask: Callable[[Quote], Awaitable[str]], watcher: Watcher) -> MapResult:
        plan = self.plan
        async with AsyncExitStack() as open_ones:
            open_ones.callback(self._ended.set)  # after all that is opened below has been closed
            open_ones.enter_context(collects_seldom())
            sink = await asyncio.to_thread(self._sink)  # a URL may take a while
            asker = await self._asker()
            open_ones.push_async_callback(asker.close)
            store = AnswerStore(self._cache_path(), plan.terms.model)
            open_ones.push_async_callback(store.close)
            job = Job(plan, asker, store, sink, ask)
            if self._partitions is not None:
                assert isinstance(asker, Coordinator)  # its workers hold the partitions
                job = PartitionJob(plan, asker, store, sink, ask)
                job.connect(self._partitions, asker)
            if self._options.get("batch"):
                api = await open_api(self._asking.settings)
                open_ones.push_async_callback(api.close)
                ledger = await asyncio.to_thread(Ledger, store.path)
                job = BatchJob(plan, asker, store, sink, ask)
                job.connect(api, ledger)
            if name := self._options.get("name"):
                await open_ones.enter_async_context(noted(store.path, name, job, self._asks))
            watcher.begin(job)
            await job.run()
        await sink.close(job.stopped)
        return MapResult(plan.source, sink, job.progress, job.stopped, self._again)

    def _sink(self) -> Collected | Parts | CollectedPartitions:
        into = self._options.get("into")
        if self._partitions is not None and into is not None:
            return PartitionFiles(into, self.plan.columns, self._asks)
        if self._partitions is not None:
            return CollectedPartitions(self.plan.columns, self._partitions)
        if into is not None:
            return Parts(into, self.plan.columns, self._asks)
        return Collected(self.plan.columns, self.plan.source.count or 0)

    async def _asker(self) -> Asker:
        settings, at_once = self._asking.settings, self._options.get("concurrency")
        if self._turn_config is not None:
            return AgentAsker(
                self._asking.session,
                self._turn_config,
                reads_only=self._reads_only,
                output=self.plan.columns.output,
                requests=self._requests,
                at_once=self.plan.at_once,
            )
        if self._engine is not None:
            return await self._coordinator(self._engine, at_once)
        if self._is_live:
            return RowClient(
                settings.wire_api,
                api_key=settings.api_key,
                base_url=settings.base_url,
                concurrency=at_once,
            )
        return ModelAsker(self._asking.models.open(settings), at_once)

    async def _coordinator(self, engine: Engine, at_once: int | None) -> Coordinator:
        """Return what asks through the workers of an engine, which come from now on."""
        plan, source = self.plan, await source_of(self._asking.settings)
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

    def _cache_path(self) -> Path | None:
        cache = self._options.get("cache", True)
        if isinstance(cache, bool):
            return cache_file() if cache and self._is_live else None
        return Path(cache).expanduser().absolute()

    @property
    def _is_live(self) -> bool:
        """Whether a server answers: what a recording or a program's model says is not kept."""
        settings = self._asking.settings
        return not (self._asking.models.given or settings.replay or settings.record)

    # -- on the calling thread ---------------------------------------------------------------------

    async def wait(self, watcher: Watcher | None = None) -> MapResult:
        """Run the map, and answer its question on this loop; None is the agent's own watcher."""
        watcher = watcher or self._asking.watcher(False)
        loop = asyncio.get_running_loop()

        async def ask(quote: Quote) -> str:
            deciding = asyncio.run_coroutine_threadsafe(self._decide(quote), loop)
            return await asyncio.wrap_future(deciding)

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
            decided: Future[str] = Future()
            decided.set_running_or_notify_cancel()  # so that it takes an answer that comes too late
            asked.put((quote, decided))
            return await asyncio.wrap_future(decided)

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
                question = asked.get(timeout=INTERVAL)
            except queue.Empty:
                watcher.draw()
                continue
            if question is None:
                return
            quote, decided = question
            answered = self._refusal(quote) or _decision(
                quote, self._asking.host().answer_blocking(_question(quote))
            )
            decided.set_result(answered)
        raise KeyboardInterrupt

    async def _decide(self, quote: Quote) -> str:
        """Return one of `CHOICES`, or why nobody was asked."""
        if refusal := self._refusal(quote):
            return refusal
        answer = self._asking.host().answer(_question(quote))
        return _decision(quote, answer if isinstance(answer, Answer) else await answer)

    def _refusal(self, quote: Quote) -> str:
        is_never = self._asking.settings.approval == "never"
        return REFUSED.format(quote=quote, why=UNDER_NEVER) if is_never else ""

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


def _decision(quote: Quote, answer: Answer) -> str:
    if answer.by == "policy":
        return REFUSED.format(quote=quote, why=NOBODY)
    return _CHOICES.get(answer.decision, SAMPLE_ONLY)


# What the run asks the waiting thread; None where it has ended.
_Asked: TypeAlias = queue.Queue[tuple[Quote, Future[str]] | None]
_CHOICES = {"approve": GO_ON, "deny": SAMPLE_ONLY, "abort": STOP}


def _terms(settings: Settings, columns: AnswerColumns) -> Terms:
    """Return what all questions share; nothing of it tells of the workspace."""
    instructions = settings.instructions or ""
    if columns.output is not None:
        instructions += columns.output.instructions
    features = settings.features or {}
    return Terms(
        settings.model,
        instructions,
        columns.schema,
        features.get("service_tier", ""),
        features.get("reasoning_summary", ""),
    )


def _digest(
    settings: Settings,
    terms: Terms,
    columns: AnswerColumns,
    tools: Mapping[str, object] | None,
) -> bytes:
    """Return a digest of all that decides answers, but for the rows."""
    asked = {
        "server": server_address(settings.base_url),
        "features": dict(settings.features or {}),
        **asdict(terms),
        **({"columns": columns.of_type} if columns.of_type else {}),
        **(tools or {}),
    }
    text = json.dumps(asked, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=32).digest()
