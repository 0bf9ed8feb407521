"""Runs ``%%agent`` cells: in order, in the background, with a plan first, or over rows."""

import asyncio
from argparse import Namespace
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent_magics.app import Agent
from agent_magics.engine.results.run import RunResult
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.kernel.cell.publishing import is_watched
from agent_magics.kernel.cell.request.options import read_type
from agent_magics.kernel.cell.request.pictures import missing_pictures, read_pictures
from agent_magics.kernel.cell.request.reading import text_of
from agent_magics.kernel.cell.run import CellRun
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.kernel.questions.ways import stdin_allowed
from agent_magics.models.providers.families import tools_config
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.events import ToolCallCompleted
from agent_magics.protocol.items import InputImage
from agent_magics.text.brief import brief
from agent_magics.tools.proposal import NAME, RUN, RUN_PROMPT

if TYPE_CHECKING:  # fifty modules, which most kernels never use
    from agent_magics.kernel.cell.mapping import MapCell
    from agent_magics.rows.result import MapResult

_NO_BACKGROUND = (
    "--background needs a cell of its own at the top level of a notebook; leave it out elsewhere, "
    "also in a terminal, where nothing goes on between two cells."
)
_UNSAVED = (
    "Where a notebook runs by itself (nbconvert, papermill), the output of a run in the background "
    "is not saved, and the run ends with the last cell: leave out `--background` there."
)


class AgentCells:
    """Runs the cells of a notebook's agents.

    Args:
        notebook: the agents, and what their cells share.
    """

    def __init__(self, notebook: NotebookAgents) -> None:
        self._notebook = notebook
        self._orders: dict[str, asyncio.Lock] = {}  # an agent's cells wait for each other here

    def run_blocking(self, options: Namespace, cell: str) -> None:
        """Run a ``%%agent`` cell that blocks."""
        if options.background:
            raise FatalError(_NO_BACKGROUND)
        if options.map:
            mapping, asked = self._prepare_map(options, cell, blocks=True)
            self._bind_map(mapping.run_blocking(**asked), options)
            return
        run, prompt = self._prepare(options, cell)
        if run.agent.session.busy:
            raise FatalError(f"{_at_work(run.agent)} This cell blocks the kernel; it cannot wait.")
        with self._settling(run, options):
            result = run.run_blocking(prompt, self._begin(run, options, prompt))
            if options.plan and is_to_run(result):
                with self._run_of_plan(run, options) as (following, turn_config):
                    result = following.run_blocking(RUN_PROMPT, turn_config)
            self._finish(result, options)

    async def run_awaiting(self, options: Namespace, cell: str) -> None:
        """Run a ``%%agent`` cell that awaits."""
        if options.background:
            self._check_background()
        if options.map:
            mapping, asked = self._prepare_map(options, cell)
            if options.background:
                self._go_on_behind(mapping.agent, self._map_behind(mapping, asked, options))
            else:  # the agent stays free for other cells
                self._bind_map(await mapping.run(**asked), options)
            return
        run, prompt = self._prepare(options, cell)
        order = self._orders.setdefault(run.agent.name, asyncio.Lock())
        if run.agent.session.busy and not order.locked():
            raise FatalError(f"{_at_work(run.agent)} No cell began that run, so none can wait.")
        with self._settling(run, options):
            turn_config = None if order.locked() else self._begin(run, options, prompt)
            running = self._run_in_order(run, prompt, options, order, turn_config)
            if options.background:
                self._start_background(run, running, options)
            else:
                self._finish(await running, options)

    def _check_background(self) -> None:
        """Refuse a run in the background where it would stand still; say where none is saved."""
        shell = self._notebook.shell
        if getattr(shell, "kernel", None) is None:
            raise FatalError(_NO_BACKGROUND)
        if not stdin_allowed(shell):
            self._notebook.publish_text(_UNSAVED)

    async def _run_in_order(
        self,
        run: CellRun,
        prompt: str,
        options: Namespace,
        order: asyncio.Lock,
        turn_config: TurnConfig | None,
    ) -> RunResult:
        """Run a cell after the earlier cells of its agent.

        Args:
            run: the cell's run.
            prompt: the text for the model.
            options: the cell's options.
            order: the lock that the agent's cells acquire in turn.
            turn_config: the configuration; None where it is built when the cell's turn has come.
        """
        with self._notebook.closing_unused(run.agent):
            await run.wait_for(order)
        try:
            turn_config = turn_config or self._begin(run, options, prompt)
            result = await run.run_awaiting(prompt, turn_config, background=options.background)
            if options.plan and is_to_run(result):
                with self._run_of_plan(run, options) as (following, turn_config):
                    result = await following.run_awaiting(
                        RUN_PROMPT, turn_config, background=options.background
                    )
        finally:
            order.release()
        return result

    # -- how a cell begins and ends ----------------------------------------------------------------

    def _prepare(self, options: Namespace, cell: str) -> tuple[CellRun, str]:
        known = self._notebook.agents.get(options.name or self._notebook.settings.name)
        workspace = None if known is None or options.new else known.config.cwd
        reader = self._notebook.cell_reader
        prompt = reader.prompt(options, cell, workspace)
        if options.new:
            agent = self._notebook.agent_for(options.name, new=True)
        else:
            agent = self._notebook.agent_named(options.name)
        with self._notebook.closing_unused(agent):
            pictures, missing = _pictures(agent, options, cell)
            run = self._notebook.begin_run(agent, pictures)
            if missing:
                named = brief(", ".join(missing), 200)
                note = f"Not sent, since the workspace has no such picture: {named}."
                run.note(note, "warning")
        return run, prompt

    @contextmanager
    def _run_of_plan(
        self, run: CellRun, options: Namespace
    ) -> Iterator[tuple[CellRun, TurnConfig]]:
        """Carry a plan out by an ordinary run in the same cell; what interrupts it interrupts the
        cell's.
        """
        following = self._notebook.begin_run(run.agent)
        self._notebook.views[run.agent.name] = following.view
        options.plan = False
        try:
            yield following, self._notebook.turn_config(run.agent, options)[0]
        finally:
            run.interrupted = following.interrupted

    def _begin(self, run: CellRun, options: Namespace, prompt: str) -> TurnConfig:
        """Return the configuration of a cell's turn, when that begins."""
        agent = run.agent
        if options.new:
            with self._notebook.closing_unused(agent):
                # First, so that what is refused costs no conversation.
                self._notebook.cell_reader.turn(agent, options)[0].open_model()
                self._notebook.begin_with(agent)
        run.has_begun = True
        turn_config, notes = self._notebook.turn_config(agent, options, prompt)
        given = self._notebook.cell_reader.settings_of(options)
        is_recorded = given["replay"] is not None or given["record"] is not None
        if not is_recorded:
            run.name_conversation()
        for note in notes:
            run.note(note)
        notebook = self._notebook
        is_seen = not is_recorded and is_watched(notebook.shell)
        notebook.earlier_conversation.offer(run, can_be_shown=is_seen)
        notebook.last_agent = agent
        notebook.views[agent.name] = run.view
        return turn_config

    @contextmanager
    def _settling(self, run: CellRun, options: Namespace) -> Iterator[None]:
        """Discard the new recording of a cell that fails, unless it has not begun; bind `_agent`
        also where the person interrupts, to the result until then.
        """
        try:
            yield
        except BaseException:
            if run.has_begun:
                self._settle(options, None)
            if run.interrupted is not None:
                self._notebook.shell.user_ns["_agent"] = run.interrupted
            raise

    def _finish(self, result: RunResult, options: Namespace) -> None:
        self._notebook.shell.user_ns["_agent"] = result
        self._settle(options, result)
        if result.status == "failed":
            raise FatalError(result.error)
        if result.status == "aborted":
            raise FatalError("The agent was stopped; Run All ends here.")
        self._bind(result, options)

    def _bind(self, result: RunResult, options: Namespace) -> None:
        """Bind the answer to the variable of ``--into``, unless a budget ended the run early.

        A plan that was not run is no answer.
        """
        if options.plan:
            return
        if options.into and options.output is None:
            self._notebook.shell.user_ns[options.into] = result.text
        elif options.into and not result.budget:
            self._notebook.shell.user_ns[options.into] = result.value

    def _settle(self, options: Namespace, result: RunResult | None) -> None:
        """Keep the new recording of a cell, or discard it where the cell did not succeed."""
        ended_well = result is not None and result.status == "completed"
        name = options.name or self._notebook.settings.name
        self._notebook.rerecording.settle(name, ended_well=ended_well)

    def _start_background(
        self, run: CellRun, running: Coroutine[Any, Any, RunResult], options: Namespace
    ) -> None:
        async def work() -> None:
            try:
                result = await running
                self._settle(options, result)
            except (KeyboardInterrupt, FatalError) as error:  # no cell is left to end with it
                if run.has_begun:
                    self._settle(options, None)
                if isinstance(error, FatalError):
                    run.note(short_message(error), "error")
                return
            self._notebook.shell.user_ns["_agent"] = result
            if result.status == "completed":
                self._bind(result, options)

        self._go_on_behind(run.agent, work())

    def _go_on_behind(self, agent: Agent, work: Coroutine[Any, Any, None]) -> None:
        """Let the rest of a cell go on while other cells run."""
        name = f"background agent {agent.name}"
        task = asyncio.get_running_loop().create_task(work, name=name)
        tasks = self._notebook.background.setdefault(agent.name, [])
        tasks.append(task)
        task.add_done_callback(tasks.remove)

    # -- cells that map ----------------------------------------------------------------------------

    async def _map_behind(
        self, mapping: "MapCell", asked: dict[str, Any], options: Namespace
    ) -> None:
        """Run a map in the background; no cell is left to end with its error."""
        try:
            self._bind_map(await mapping.run(background=True, **asked), options)
        except KeyboardInterrupt:
            return
        except FatalError as error:
            mapping.fail(short_message(error))

    def _prepare_map(
        self, options: Namespace, cell: str, *, blocks: bool = False
    ) -> "tuple[MapCell, dict[str, Any]]":
        from agent_magics.kernel.cell import mapping  # noqa: PLC0415 - as above

        namespace = self._notebook.shell.user_ns
        agent = self._notebook.agent_named(options.name)
        asked = {
            "prompt": text_of(cell),
            "rows": mapping.read_rows(options.map, namespace),
            "output": read_type(options.output, namespace),
            "cell": self._notebook.cell_reader.settings_of(options),
            "options": mapping.map_options(options, namespace),
        }
        place = "" if options.into else "`_agent.frame`; `--into NAME` gives them a name"
        shell, host = self._notebook.shell, self._notebook.host
        return mapping.MapCell(shell, host, agent, blocks=blocks, place=place), asked

    def _bind_map(self, result: "MapResult", options: Namespace) -> None:
        self._notebook.shell.user_ns["_agent"] = result
        if options.into:
            self._notebook.shell.user_ns[options.into] = result.frame


def _pictures(
    agent: Agent, options: Namespace, cell: str
) -> tuple[tuple[InputImage, ...], list[str]]:
    """Return the pictures that the cell names, where the model can see any, and those missing."""
    settings = agent.settings
    forms = tools_config(options.model or settings.model, settings.features)
    if not forms.view_image:
        return (), []
    workspace = agent.config.cwd
    pictures = read_pictures(cell, workspace, agent.read_judge())
    return pictures, missing_pictures(cell, workspace)


def _at_work(agent: Agent) -> str:
    return f"Agent {agent.name!r} is at work; wait for it, or use another one (--name)."


def is_to_run(result: RunResult) -> bool:
    """Return whether the last plan of a turn was answered with *Run it*."""
    answers = [
        event.details.get("plan")
        for event in result.events
        if isinstance(event, ToolCallCompleted) and event.name == NAME
    ]
    return result.status == "completed" and answers[-1:] == [RUN]
