"""Checks what a caller gave to `Agent.map`, and plans the map: its rows, questions and limits.

Nothing is asked here, and nothing is opened but the rows.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from agent_magics.engine.foreground.host import Host
from agent_magics.engine.session import Session
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.files.paths import typed_path
from agent_magics.model_clients import ModelClients
from agent_magics.models.error_redaction import shown_address
from agent_magics.models.providers.catalog import find_model
from agent_magics.models.providers.endpoints import server_address
from agent_magics.protocol.checked import check
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.askers import agents
from agent_magics.rows.askers.agents import RowRuns
from agent_magics.rows.askers.models import AT_ONCE
from agent_magics.rows.asking import Terms
from agent_magics.rows.budgets import Budgets, is_amount
from agent_magics.rows.engines.choice import check_portable, engine_of, partitions_of
from agent_magics.rows.engines.coordinator import Engine
from agent_magics.rows.engines.partitions import Partitions
from agent_magics.rows.job import Job, Plan
from agent_magics.rows.prompts import Given, identity_of, read_prompt
from agent_magics.rows.remote.client import CONCURRENCY
from agent_magics.rows.store import cache_file
from agent_magics.rows.tables.columns import AnswerColumns
from agent_magics.rows.tables.files import FileJudge
from agent_magics.rows.tables.sources import Held, Source, open_source
from agent_magics.text.brief import meant

# USD above which a person is asked before all rows are.
ASK_ABOVE = 1.0
# Characters of a prompt: about four are a token, eight at the very most.
_CHARACTERS_PER_TOKEN, _MOST_CHARACTERS = 8, 4 << 20

NO_BATCH = (
    "batch=True needs a server and the cache of answers, in which it keeps what was sent: leave "
    "out cache=False, or batch=True (recordings and a program's own model have no batch API)."
)
NO_NAME = (
    "name= needs a server and the cache of answers, in which it is kept: leave out cache=False, or "
    "name= (answers of recordings and of a program's own model are not kept)."
)
NO_CACHE = (
    "cache={given!r}: answers of recordings and of a program's own model are not kept, so each "
    "call asks again: leave out cache=, or name a server's model."
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

    @property
    def is_live(self) -> bool:
        """Whether a server answers: what a recording or a program's model says is not kept."""
        settings = self.settings
        return self.models.given is None and not (settings.replay or settings.record)


@dataclass(frozen=True, slots=True)
class PlannedMap:
    """A map that is ready to run.

    Attributes:
        plan: what is asked, and within which limits.
        cache: the file that keeps the answers; None where none does.
        asks: a digest of what is asked, but for the rows.
        runs: the agent runs that ask; None where the model itself is asked.
        engine: what asks from other processes; None where this one asks.
        partitions: those of a Dask frame, which the workers of `engine` read; None where rows come
            from here.
    """

    plan: Plan
    cache: Path | None
    asks: bytes
    runs: RowRuns | None
    engine: Engine | None
    partitions: Partitions | None


def plan_map(
    asking: Asking, prompt: Given, rows: Any, output: Any, options: MapOptions
) -> PlannedMap:
    """Plan one call of `Agent.map`.

    Args:
        asking: what the agent gives.
        prompt, rows, output, options: as given to `Agent.map`.

    Raises:
        FatalError: one of them is invalid; nothing has been asked.
    """
    _check_options(prompt, options)
    settings, columns = asking.settings, AnswerColumns(output)
    budgets = Budgets(  # before the source is opened, which may take time of the deadline
        options.get("max_cost", settings.max_cost),
        options.get("max_tokens", settings.max_tokens),
        options.get("max_errors"),
        options.get("deadline"),
    )
    terms = _terms(settings, columns)
    engine = _engine(asking, options, terms.model)
    partitions = partitions_of(rows, engine)
    source = _source(rows, partitions, asking.judge, keep=options.get("into") is None)
    runs, cache = _runs(asking, options), _cache(asking, options)
    digest = _digest(settings, terms, columns, runs)
    # Without rows a list or file has no columns either.
    columns_there = source.columns if source.columns or source.count != 0 else None
    plan = Plan(
        source,
        read_prompt(prompt, columns_there, asking.judge),
        columns,
        replace(terms, name=digest.hex()[:16]),
        digest,
        budgets,
        options.get("ask_above", ASK_ABOVE),
        options.get("concurrency") or _at_once(asking, runs),
        _most_characters(settings),
    )
    asks = hashlib.blake2b(identity_of(prompt), digest_size=16, key=digest).digest()
    return PlannedMap(plan, cache, asks, runs, engine, partitions)


# -- the options -----------------------------------------------------------------------------------


def _check_options(prompt: Given, options: MapOptions) -> None:
    """Refuse options that are not known, invalid, or contradict each other."""
    kinds = MapOptions.__annotations__
    unknown = set(options) - set(kinds)
    if unknown:
        names = ["output", *kinds]
        raise FatalError(f"map has no option {min(unknown)!r}; {meant(min(unknown), names)}")
    check("map(prompt, rows): prompt", prompt, Given)
    for name in {"into", "cache", "name", "batch"} & set(options):
        check(f"map: {name}", options.get(name), kinds[name])
    if options.get("into") == "":
        raise FatalError("into='': it takes a folder or a URL, or None.")
    concurrency = options.get("concurrency")
    is_number = type(concurrency) is int and 0 < concurrency <= MOST_AT_ONCE
    if not (concurrency is None or is_number):
        raise FatalError(AT_ONCE_TAKES.format(given=concurrency, most=MOST_AT_ONCE))
    ask_above = options.get("ask_above")
    if not (ask_above is None or is_amount(ask_above, least=0)):
        raise FatalError(f"ask_above={ask_above!r}: it takes USD from 0, or None.")
    if options.get("batch") and options.get("engine") is not None:
        raise FatalError("batch=True sends files, and no worker asks: leave out engine=.")


def _engine(asking: Asking, options: MapOptions, model: str) -> Engine | None:
    given = options.get("engine")
    if given is None:
        return None
    check_portable(asking.settings, asking.models)
    return engine_of(given, f"agent.map {options.get('name') or model}")


def _source(rows: Any, partitions: Partitions | None, judge: FileJudge, *, keep: bool) -> Source:
    """Return the rows; `keep` has those held that can be read once only, for the result."""
    if isinstance(rows, Held):
        return rows
    source = open_source(rows, hold=keep and partitions is None, judge=judge)
    return source if partitions is None else replace(source, library="dask")


def _runs(asking: Asking, options: MapOptions) -> RowRuns | None:
    """Return the agent runs of rows with tools; None without tools."""
    tools, requests = options.get("tools"), options.get("requests", agents.REQUESTS)
    if not tools:
        if "requests" in options:
            raise FatalError(REQUESTS.format(given=requests))
        return None
    for name in ("engine", "batch"):
        if options.get(name):
            raise FatalError(NO_TOOLS.format(what=f"{name}="))
    if isinstance(requests, bool) or not (isinstance(requests, int) and requests >= 2):
        raise FatalError(REQUESTS.format(given=requests))
    reads_only = tools is True
    return RowRuns(asking.turn_config(None if reads_only else tools), reads_only, requests)


def _cache(asking: Asking, options: MapOptions) -> Path | None:
    """Return the file that keeps the answers; None where none does.

    Raises:
        FatalError: an option needs one, or names one in vain.
    """
    cache = options.get("cache", True)
    if cache is not False and asking.is_live:
        return cache_file() if cache is True else typed_path(cache).absolute()
    if options.get("batch"):
        raise FatalError(NO_BATCH)
    if options.get("name"):
        raise FatalError(NO_NAME)
    if not isinstance(cache, bool):
        raise FatalError(NO_CACHE.format(given=str(cache)))
    return None


# -- what follows from them ------------------------------------------------------------------------


def _at_once(asking: Asking, runs: RowRuns | None) -> int:
    if runs is not None:
        return agents.AT_ONCE
    return CONCURRENCY if asking.is_live else AT_ONCE


def _most_characters(settings: Settings) -> int:
    card = find_model(settings.model)
    window = settings.context_window or (card and card.context_window) or 0
    return window * _CHARACTERS_PER_TOKEN or _MOST_CHARACTERS


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
    settings: Settings, terms: Terms, columns: AnswerColumns, runs: RowRuns | None
) -> bytes:
    """Return a digest of all that decides answers, but for the rows."""
    asked = {
        "server": shown_address(server_address(settings.base_url)),
        "features": dict(settings.features or {}),
        **asdict(terms),
        **({"columns": columns.of_type} if columns.of_type else {}),
        **(runs.described() if runs else {}),
    }
    text = json.dumps(asked, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=32).digest()
