"""Runs the cells and control lines of this kernel's agents; loaded at the magics' first use."""

import asyncio
import atexit
import keyword
import sys
from argparse import Namespace
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from agent_magics.app import Agent
from agent_magics.engine.past.rewind import Rewind
from agent_magics.engine.results.run import RunResult
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.kernel.cell.plan_first import is_to_run
from agent_magics.kernel.cell.publishing import is_watched
from agent_magics.kernel.cell.request.output_type import read_type
from agent_magics.kernel.cell.request.pictures import read_pictures
from agent_magics.kernel.cell.request.setup import CellSetup
from agent_magics.kernel.cell.run import CellRun
from agent_magics.kernel.earlier_conversation import EarlierConversation
from agent_magics.kernel.lab.cell_reviews import CellReviews
from agent_magics.kernel.lab.cell_ways import CellWay
from agent_magics.kernel.lab.document import LabDocument
from agent_magics.kernel.lab.reviews import answer_review
from agent_magics.kernel.live.changes import RunChange
from agent_magics.kernel.live.namespace import LiveNamespace
from agent_magics.kernel.live.tools import MCP
from agent_magics.kernel.questions.ladder import NotebookHost
from agent_magics.kernel.setting_traits import given_in
from agent_magics.models.providers.families import tools_config
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import InputImage
from agent_magics.records.index import RecordedConversation
from agent_magics.settings.sources import Source
from agent_magics.tools.mcp.callables import McpNamespace
from agent_magics.tools.proposal import RUN_PROMPT

if TYPE_CHECKING:  # fifty modules, which most kernels never use
    from agent_magics.kernel.cell.mapping import MapCell
    from agent_magics.rows.mapping import Watcher
    from agent_magics.rows.result import MapResult


@dataclass(slots=True)
class WayForth:
    """What `%agent redo` needs to revert a rewind."""

    way: Rewind
    cells: Sequence[CellWay] = ()
    variables: Sequence[RunChange] = ()


class NotebookAgents:
    """The agents of a kernel by name, and the state that their cells share.

    Args:
        shell: the IPython shell.
        settings: the traits of `AgentMagics`; read again for each cell.
    """

    def __init__(self, shell: Any, settings: Any) -> None:
        self.shell = shell
        self.settings = settings
        self.host = NotebookHost(shell, settings.lab)
        self.live_kernel = LiveNamespace(shell)
        self.live_kernel.document = self.document = LabDocument(settings.lab)
        settings.lab.answers["stop_agent"] = self._stop_sub_agent
        CellReviews(settings.lab)
        settings.lab.answers["review"] = partial(answer_review, settings.lab)
        self.agents: dict[str, Agent] = {}
        self.views: dict[str, Any] = {}
        self.background: dict[str, list[asyncio.Task[Any]]] = {}  # the one at work first
        self._orders: dict[str, asyncio.Lock] = {}  # an agent's cells wait for each other here
        self._cell_setup = CellSetup(shell, settings)
        self.rerecording = self._cell_setup.rerecording
        self._runs: WeakValueDictionary[int, CellRun] = WeakValueDictionary()
        self._last_agent: Agent | None = None
        self.listed: list[str] = []  # conversations, as %agent sessions last showed them
        self.ways_back: dict[str, WayForth] = {}  # from the last rewind of each agent
        self._earlier = EarlierConversation(settings.lab, self.agents)
        atexit.register(self.close)  # while the kernel can still show how the sessions ended

    def before_cell(self, info: Any) -> None:
        """Bind the names that a cell mentions: ``mcp``, and the last agent's results (``_r7``)."""
        agent = self._last_agent
        if getattr(info, "cell_id", None):
            self.live_kernel.cell_ids[info.raw_cell.rstrip("\n")] = info.cell_id
        if "mcp." in info.raw_cell and not self.live_kernel.running:
            self._bind_mentioned()
        if agent is not None and "_r" in info.raw_cell and not self.live_kernel.running:
            self.live_kernel.bind_kept(info.raw_cell, agent.session.conversation.handles)

    def _bind_mentioned(self) -> None:
        """Bind `mcp` for a cell that names it before any agent has run."""
        if MCP in self.shell.user_ns:
            return
        try:
            self._bind_servers(self.agent_named())
        except FatalError as error:
            print(f"mcp is not there: {error}", file=sys.stderr)  # noqa: T201 - the cell goes on

    def _stop_sub_agent(self, wish: Mapping[str, Any]) -> Mapping[str, Any]:
        """Stop the sub-agent whose record has the id that a page names; from any thread."""
        for agent in tuple(self.agents.values()):
            agent.session.engine.post(agent.sub_agents.stop_by_person, str(wish.get("id")))
        return {}

    # -- cells -------------------------------------------------------------------------------------

    def run_blocking(self, options: Namespace, cell: str) -> None:
        """Run a ``%%agent`` cell that blocks."""
        if options.map:
            mapping, asked = self._prepare_map(options, cell, blocks=True)
            self._bind_map(mapping.run_blocking(**asked), options)
            return
        if options.background:
            raise FatalError("--background needs a cell of its own at the top level of a notebook.")
        run, prompt = self._prepare(options, cell)
        if run.agent.session.busy:
            raise FatalError(f"{_at_work(run.agent)} This cell blocks the kernel; it cannot wait.")
        setup = self._begin(run, options, prompt)
        with self._binding_interrupted(run, options):
            result = run.run_blocking(prompt, setup)
            if options.plan and is_to_run(result):
                following, setup = self._run_of_plan(run, options)
                result = following.run_blocking(RUN_PROMPT, setup)
            self._finish(result, options)

    async def run_awaiting(self, options: Namespace, cell: str) -> None:
        """Run a ``%%agent`` cell that awaits."""
        if options.map:
            mapping, asked = self._prepare_map(options, cell)
            work = self._map(mapping.run(**asked), options)
            if options.background:
                self._go_on_behind(mapping.agent, work)
            else:  # the agent stays free for other cells
                await work
            return
        run, prompt = self._prepare(options, cell)
        order = self._orders.setdefault(run.agent.name, asyncio.Lock())
        if run.agent.session.busy and not order.locked():
            raise FatalError(f"{_at_work(run.agent)} No cell began that run, so none can wait.")
        setup = None if order.locked() else self._begin(run, options, prompt)
        running = self._run_in_order(run, prompt, options, order, setup)
        if options.background:
            self._start_background(run, running, options)
            return
        with self._binding_interrupted(run, options):
            self._finish(await running, options)

    async def _run_in_order(
        self,
        run: CellRun,
        prompt: str,
        options: Namespace,
        order: asyncio.Lock,
        setup: TurnConfig | None,
    ) -> RunResult:
        """Run a cell after the earlier cells of its agent.

        Args:
            run: the cell's run.
            prompt: the text for the model.
            options: the cell's options.
            order: the lock that the agent's cells acquire in turn.
            setup: the configuration; None where it is built when the cell's turn has come.
        """
        await run.wait_for(order)
        try:
            setup = setup or self._begin(run, options, prompt)
            result = await run.run_awaiting(prompt, setup, background=options.background)
            if options.plan and is_to_run(result):
                following, setup = self._run_of_plan(run, options)
                result = await following.run_awaiting(
                    RUN_PROMPT, setup, background=options.background
                )
        finally:
            order.release()
        return result

    # -- cells that map ----------------------------------------------------------------------------

    async def _map(self, running: "Coroutine[Any, Any, MapResult]", options: Namespace) -> None:
        self._bind_map(await running, options)

    def _prepare_map(
        self, options: Namespace, cell: str, *, blocks: bool = False
    ) -> "tuple[MapCell, dict[str, Any]]":
        from agent_magics.kernel.cell import mapping  # noqa: PLC0415 - as above

        _check_into(options)
        namespace = self.shell.user_ns
        agent = self.agent_named(options.name)
        asked = {
            "prompt": cell.strip(),
            "rows": mapping.read_rows(options.map, namespace),
            "output": read_type(options.output, namespace),
            "cell": self._cell_setup.settings_of(options),
            "options": mapping.map_options(options, namespace),
        }
        return mapping.MapCell(self.shell, self.host, agent, blocks=blocks), asked

    def map_watcher(self, agent: Agent, blocks: bool) -> "Watcher":
        """Return what shows a call of `Agent.map` in the cell that makes it."""
        from agent_magics.kernel.cell.mapping import watcher_of_call  # noqa: PLC0415 - as above

        return watcher_of_call(self.shell, self.host, agent, blocks=blocks)

    def _bind_map(self, result: "MapResult", options: Namespace) -> None:
        self.shell.user_ns["_agent"] = result
        if options.into:
            self.shell.user_ns[options.into] = result.frame

    def _prepare(self, options: Namespace, cell: str) -> tuple[CellRun, str]:
        _check_into(options)
        prompt = self._cell_setup.prompt(options, cell)
        agent = self.agent_named(options.name, new=options.new)
        run = CellRun(self.shell, self.host, agent, self._pictures(agent, options, cell))
        self._runs[id(run)] = run
        return run, prompt

    def _pictures(self, agent: Agent, options: Namespace, cell: str) -> tuple[InputImage, ...]:
        """Return the pictures that the cell names, where the model can see any."""
        settings = agent.settings
        forms = tools_config(options.model or settings.model, settings.features)
        return read_pictures(cell, agent.config.cwd) if forms.view_image else ()

    def _run_of_plan(self, run: CellRun, options: Namespace) -> tuple[CellRun, TurnConfig]:
        """Return the run that carries a plan out in the same cell, an ordinary one."""
        following = CellRun(self.shell, self.host, run.agent)
        self._runs[id(following)] = following
        self.views[run.agent.name] = following.view
        options.plan = False
        return following, self._setup(run.agent, options)[0]

    def _begin(self, run: CellRun, options: Namespace, prompt: str) -> TurnConfig:
        """Return the configuration of a cell's turn, when that begins."""
        agent = run.agent
        setup, notes = self._setup(agent, options, prompt)
        if not (notes or options.record or self.settings.record):
            run.name_conversation()
        for note in notes:
            run.note(note)
        self._earlier.offer(run, can_be_shown=not notes and is_watched(self.shell))
        self._last_agent = agent
        self.views[agent.name] = run.view
        return setup

    def earlier(self) -> RecordedConversation | None:
        """Return this notebook's last conversation of an earlier kernel; None for none."""
        return self._earlier.find()

    def setup_of(self, agent: Agent) -> TurnConfig:
        """Return the configuration of a run of `agent` in a cell without options."""
        return self._setup(agent, self.settings.agent.parser.parse_argstring(""))[0]

    def _setup(
        self, agent: Agent, options: Namespace, prompt: str | None = None
    ) -> tuple[TurnConfig, list[str]]:
        setup, notes = self._cell_setup.turn(agent, options, prompt)
        self._bind_servers(agent)
        return setup, [*notes, *agent.new_notes()]

    def _bind_servers(self, agent: Agent) -> None:
        """Bind the tools of the agent's MCP servers as `mcp`, unless the person uses that name."""
        namespace, there = self.shell.user_ns, self.shell.user_ns.get(MCP)
        if there is not None and not isinstance(there, McpNamespace):
            return
        tools = agent.mcp_tools
        if tools is not None:
            namespace[MCP] = self.shell.user_ns_hidden[MCP] = tools
        elif there is not None:
            del namespace[MCP]

    def agent_named(self, name: str = "", *, new: bool = False) -> Agent:
        """Return the agent of that name, else the notebook's own, made at its first use.

        Args:
            name: the agent's; "" is that of the settings.
            new: whether its conversation begins anew.
        """
        given, name = self.given(), name or self.settings.name
        agent = self.agents.get(name)
        if agent is not None and new:
            agent.reset()
            if agent.is_elsewhere(given):  # its conversation has ended, so nothing is lost
                agent.close()
                agent = None
        if agent is None:
            cwd = {key: given.values[key] for key in ("cwd",) if key in given.values}
            agent = self.agents[name] = Agent(name=name, **cwd)
        agent.use(Source(given.name, {**given.values, "name": name}))
        return agent

    def given(self) -> Source:
        """Return the settings of this notebook for all of its cells."""
        values = given_in(self.settings)
        # A cell chooses among these itself; see `CellSetup`.
        for name in ("name", "tools", "replay", "record"):
            values.pop(name, None)
        return Source("%config", values)

    def settings_now(self) -> Settings:
        """Return the settings of the next cell.

        Raises:
            FatalError: one of them is invalid.
        """
        return self.agent_named().settings

    @contextmanager
    def _binding_interrupted(self, run: CellRun, options: Namespace) -> Iterator[None]:
        """Bind `_agent` also where the person interrupts, to the result until then."""
        try:
            yield
        except KeyboardInterrupt:
            self.shell.user_ns["_agent"] = run.interrupted
            self._settle(options, None)
            raise

    def _finish(self, result: RunResult, options: Namespace) -> None:
        self.shell.user_ns["_agent"] = result
        self._settle(options, result)
        if result.status == "failed":
            raise FatalError(result.error)
        if result.status == "aborted":
            raise FatalError("The agent was stopped; Run All ends here.")
        self._bind(result, options)

    def _bind(self, result: RunResult, options: Namespace) -> None:
        """Bind the answer to the variable of ``--into``, unless a budget ended the run early."""
        if options.into and options.output is None:
            self.shell.user_ns[options.into] = result.text
        elif options.into and not result.budget:
            self.shell.user_ns[options.into] = result.value

    def _settle(self, options: Namespace, result: RunResult | None) -> None:
        """Keep the new recording of a cell, or discard it where the cell did not succeed."""
        ended_well = result is not None and result.status == "completed"
        self.rerecording.settle(options.name or self.settings.name, ended_well=ended_well)

    def _start_background(
        self, run: CellRun, running: Coroutine[Any, Any, RunResult], options: Namespace
    ) -> None:
        async def work() -> None:
            try:
                result = await running
                self._settle(options, result)
            except KeyboardInterrupt:
                return
            except FatalError as error:  # no cell is left to end with it
                run.note(str(error), "error")
                return
            self.shell.user_ns["_agent"] = result
            if result.status == "completed":
                self._bind(result, options)

        self._go_on_behind(run.agent, work())

    def _go_on_behind(self, agent: Agent, work: Coroutine[Any, Any, None]) -> None:
        """Let the rest of a cell go on while other cells run."""
        name = f"background agent {agent.name}"
        task = asyncio.get_running_loop().create_task(work, name=name)
        tasks = self.background.setdefault(agent.name, [])
        tasks.append(task)
        task.add_done_callback(tasks.remove)

    @property
    def runs(self) -> tuple[CellRun, ...]:
        """The runs of cells that are still known, some of which have ended; from any thread."""
        return tuple(run for run in (each() for each in self._runs.valuerefs()) if run is not None)

    def run_of(self, agent: Agent) -> CellRun | None:
        """Return the cell's run that an agent is at work in; None for none."""
        return next((run for run in self.runs if run.agent is agent and run.activity), None)

    def doing(self, agent: Agent) -> str:
        """Return the present activity of an agent's cell as text, "" where none is running."""
        run = self.run_of(agent)
        return "" if run is None else run.doing

    def close(self) -> None:
        """Close the agents and all that they run, and remove live widgets from the cells."""
        atexit.unregister(self.close)
        for agent in self.agents.values():
            agent.close()
        for run in self.runs:
            run.draw_rest()


def _at_work(agent: Agent) -> str:
    return f"Agent {agent.name!r} is at work; wait for it, or use another one (--name)."


def _check_into(options: Namespace) -> None:
    name = options.into
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise FatalError(f"--into {name}: not a variable's name.")
