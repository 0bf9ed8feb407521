"""Runs ``%%agent --map``: one prompt over the rows of a variable, with a card of its progress."""

import asyncio
import sys
import threading
import uuid
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from agent_magics.app import Agent
from agent_magics.kernel.cell.open_questions import OpenQuestions
from agent_magics.kernel.cell.publishing import (
    CellPublisher,
    is_watched,
    text_bundle,
    widget_bundle,
)
from agent_magics.kernel.cell.request.options import evaluate
from agent_magics.kernel.lab.link import asker_of
from agent_magics.kernel.questions.ways import CellHost, NotebookHost, stdin_allowed
from agent_magics.models.providers.catalog import dollars
from agent_magics.render.blocks.display import notice_item
from agent_magics.render.markdown import code_span
from agent_magics.render.mime import item_bundle
from agent_magics.rows.budgets import duration
from agent_magics.rows.job import BY_PERSON, Job
from agent_magics.rows.planning import Watcher
from agent_magics.rows.progress import Progress
from agent_magics.rows.result import MapResult
from agent_magics.rows.tables.files import names_files

# Seconds between lines where no card can be drawn; for what is in flight at a stop.
LINES, CLEAN_UP = 10.0, 8.0


def read_rows(expression: str, namespace: Mapping[str, Any]) -> Any:
    """Return what ``--map EXPRESSION`` names: a path of files, or a value of the person's.

    Raises:
        FatalError: it cannot be evaluated.
    """
    if names_files(expression):
        return expression
    return evaluate("map", expression, namespace, "a variable with rows, or a path")


def map_options(options: Namespace, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a map that a cell gives.

    Raises:
        FatalError: what ``--engine`` names cannot be evaluated.
    """
    batch = options.batch or None
    given = {"into": options.parts, "ask_above": options.ask_above, "batch": batch}
    if options.engine:
        what = "a variable with a Dask client or an executor"
        given["engine"] = evaluate("engine", options.engine, namespace, what)
    return {name: value for name, value in given.items() if value is not None}


def watcher_of_call(shell: Any, host: NotebookHost, agent: Agent, *, blocks: bool) -> Watcher:
    """Return what shows a call of `Agent.map` in the cell that makes it; see `MapCell`."""
    if threading.current_thread() is not threading.main_thread():
        return Watcher()  # no cell makes it
    return MapCell(shell, host, agent, blocks=blocks, is_call=True)


class MapCell(Watcher):
    """One map in a cell: of ``%%agent --map``, or a call of `Agent.map` in the person's code.

    Args:
        shell: the IPython shell.
        host: answers questions in this kernel.
        agent: the agent that asks; so the attribute.
        blocks: whether the main thread is held meanwhile; clicks then need a page that connects.
        is_call: whether the person's code made it; then only a card that was drawn leaves a text.
        place: where its answers will be, if nobody has said.
    """

    def __init__(
        self,
        shell: Any,
        host: NotebookHost,
        agent: Agent,
        *,
        blocks: bool = False,
        is_call: bool = False,
        place: str = "",
    ) -> None:
        self._place = place
        self._host, self.agent, self._blocks, self._is_call = host, agent, blocks, is_call
        self._live = is_watched(shell)
        self._is_console = not self._live and stdin_allowed(shell)
        self._asker = asker_of(shell)
        self._publisher = CellPublisher(shell, self._asker.cell if self._live else "")
        self._id, self._question_id = uuid.uuid4().hex, uuid.uuid4().hex
        self._card: Any = None
        self._job: Job | None = None
        self._open = OpenQuestions(
            host, lambda question, bundle: self._publisher.publish(bundle, question.question_id)
        )
        self._told_at = 0.0

    async def run(
        self, prompt: str, rows: Any, *, background: bool = False, **options: Any
    ) -> MapResult:
        """Run the map, and draw its progress; with `background` the cell does not wait.

        Raises:
            FatalError: an argument is invalid, or nothing could be asked.
            KeyboardInterrupt: the person interrupted before anything was asked.
        """
        host = CellHost(
            self._host,
            self._open.draw,
            self._open.close,
            waits=lambda: background and self._host.lab.was_linked,
        )
        mapping = self.agent.mapping(prompt, rows, host=host if self._live else None, **options)
        running = asyncio.ensure_future(mapping.wait(self))
        try:
            await asyncio.wait({running})
        except (asyncio.CancelledError, KeyboardInterrupt):
            self._wish("stop")
            try:
                if not (await asyncio.wait({running}, timeout=CLEAN_UP))[0]:
                    raise KeyboardInterrupt from None
            finally:  # also where the person presses twice
                running.cancel()
        return running.result()

    def run_blocking(self, prompt: str, rows: Any, **options: Any) -> MapResult:
        """Run the map in a cell that blocks."""
        return self.agent.mapping(prompt, rows, **options).wait_sync(self)

    def _wish(self, wish: str) -> None:
        """Do what the person clicked; on any thread."""
        job = self._job
        if job is not None:
            action = {"pause": job.pause, "go on": job.go_on, "stop": job.stop}[wish]
            self.agent.session.engine.post(action)

    def fail(self, message: str) -> None:
        """Show why nothing was asked, or why it ended."""
        self._publisher.publish(item_bundle(notice_item(message, "error")), uuid.uuid4().hex)

    # -- drawing -----------------------------------------------------------------------------------

    def begin(self, job: Job) -> None:
        """See `Watcher.begin`."""
        self._job = job

    def draw(self) -> None:
        """See `Watcher.draw`: a card, or lines in a console."""
        job = self._job
        if job is None:
            return
        if not job.is_paused:  # so no question waits any more, whatever has answered it
            self._open.close_all()
        lines = progress_lines(job)
        if self._is_console or (self._live and self._blocks and not self._host.lab.reach):
            if job.progress.seconds - self._told_at > LINES:
                self._tell(lines[0])
                self._told_at = job.progress.seconds
            return
        if not self._live:
            return
        if self._card is None:
            self._draw_card()
        total, done = job.progress.total, job.progress.done
        held = "asking" if self._open.widgets else "paused"  # its question has buttons of its own
        state = "stopping" if job.stopped else held if job.is_paused else "running"
        self._card.show("\n".join(lines), done / total if total else None, state)
        if not self._is_call:  # whose cell has outputs of its own, which are not known here
            self._publisher.draw_on(self._host.lab.pages, self._asker.client)

    def _tell(self, line: str) -> None:
        """Show one line: the next one in a console, in place of the last one in a notebook."""
        if self._is_console:
            sys.stdout.write(f"{line}\n")
        elif self._told_at:
            self._publisher.update(text_bundle(line), self._id)
        else:
            self._publisher.publish(text_bundle(line), self._id)

    def _draw_card(self) -> None:
        # Late on purpose: a map that nobody watches never imports anywidget.
        from agent_magics.render.widgets.card import CardWidget  # noqa: PLC0415

        lab = self._host.lab
        self._card = CardWidget(self._question_id, self._wish, by_page=bool(lab.reach))
        lab.hear_question(self._question_id, self._card.hear)
        item = text_bundle("Rows are being asked.")["application/vnd.agent-magics.item+json"]
        self._publisher.publish(widget_bundle(self._card, item), self._id)  # type: ignore[arg-type]

    def end(self, *, has_result: bool) -> None:
        """See `Watcher.end`: leave the outcome in the cell, as text; no widget stays."""
        self._host.lab.hear_question(self._question_id, None)
        self._open.close_all()
        if self._job is None:
            return
        progress = self._job.progress
        is_there = self._place and has_result and progress.done > progress.failed
        place = f"\n\nThe answers are in {self._place}." if is_there else ""
        bundle = text_bundle(outcome_text(self._job) + place)
        if self._card is not None or (self._live and self._told_at):
            self._publisher.update(bundle, self._id)
        elif not self._is_call:
            self._publisher.publish(bundle, self._id)
        if self._card is not None:
            self._card.close()
        if self._live and self._asker.cell and not self._is_call:
            self._publisher.shown = {self._id: bundle}  # no question that has its answer
            self._publisher.draw_on(self._host.lab.pages, self._asker.client)
            self._host.lab.keep(self._asker.cell, self._publisher.shown)


def progress_lines(job: Job) -> list[str]:
    """Return the lines of a map's progress, for a card or a console, the most important first."""
    progress = job.progress
    of = "" if progress.total is None else f" of {progress.total:,}"
    pace = ["stopping"] if job.stopped else ["paused"] if job.is_paused else _pace(progress)
    parts = [f"{progress.done:,}{of} rows", *pace, _spent(progress)]
    return [", ".join(parts), job.state(), *error_lines(progress)]


def _pace(progress: Progress) -> list[str]:
    left = progress.time_left
    rate = f"{progress.rate:,.0f} a second"
    return [rate] if left is None else [rate, f"{duration(left)} left"]


def _spent(progress: Progress) -> str:
    """Return what is spent, and what all will cost: money where its price is known, else tokens."""
    cost = progress.known_cost
    spent = float(progress.tokens) if cost is None else cost
    projected = progress.projected(spent)
    amounts = [each for each in (spent, projected) if each is not None]
    shown = [f"{each:,.0f} tokens" if cost is None else dollars(each) for each in amounts]
    return " of about ".join(shown)


def error_lines(progress: Progress) -> list[str]:
    """Return a line for each kind of error, with an example."""
    kinds = progress.kinds().items()
    return [f"{each.count:,} errors: {kind} ({each.example})" for kind, each in kinds]


def outcome_text(job: Job) -> str:
    """Return how a map ended as Markdown, without what differs between runs, such as times."""
    progress = job.progress
    rows, unasked = progress.rows, progress.rows - progress.done
    cost = progress.known_cost
    money = "" if cost is None else f", {dollars(cost)}"
    have = "has" if progress.failed == 1 else "have"
    failed = f"; {progress.failed:,} {have} an error" if progress.failed else ""
    not_asked = f"; {unasked:,} {'was' if unasked == 1 else 'were'} not asked" if unasked else ""
    lines = [
        f"{progress.done - progress.failed:,} of {rows:,} rows have an answer{failed}{not_asked} "
        f"({progress.tokens:,} tokens{money})."
    ]
    kinds = progress.kinds().items()
    for kind, each in kinds:
        example = "" if each.example.startswith(kind) else f": {code_span(each.example)}"
        lines.append(f"- {each.count:,} {kind}{example}")
    if job.stopped:
        ended = job.stopped if job.stopped == BY_PERSON else code_span(job.stopped)
        lines.append(f"\nIt ended early: {ended}.")
    return "\n".join(lines)
