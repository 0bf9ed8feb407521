"""The agents of this kernel and their cells: what the magics do, loaded at their first use."""

import asyncio
import atexit
import keyword
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from IPython.core.error import UsageError

from agent_magics.app import Agent
from agent_magics.dispatch.shelf import join_tools
from agent_magics.engine.result import RunResult
from agent_magics.engine.setup import RunSetup
from agent_magics.engine.surroundings import Lent
from agent_magics.kernel import control
from agent_magics.kernel.answers import NotebookHost
from agent_magics.kernel.cell import CellRun
from agent_magics.kernel.lab_document import LabDocument
from agent_magics.kernel.lab_tools import PageTools
from agent_magics.kernel.live_tools import MCP
from agent_magics.kernel.namespace import LiveNamespace, interpolate, own_tools
from agent_magics.kernel.output_type import read_type
from agent_magics.kernel.rerecording import Rerecording
from agent_magics.kernel.serving import ServingDesk
from agent_magics.models.families import tools_config
from agent_magics.models.recording_file import recording_beside_notebook
from agent_magics.protocol.errors import FatalError
from agent_magics.tools.mcp_callables import McpNamespace
from agent_magics.tools.mcp_selection import split_tools
from agent_magics.tools.toolset import resolve_tools


class NotebookAgents:
    """The agents by name, and what their cells and `%agent` lines need.

    Args:
        shell: the IPython shell.
        settings: the traits of `AgentMagics`; read anew for each cell.
    """

    def __init__(self, shell: Any, settings: Any) -> None:
        self.shell = shell
        self.settings = settings
        self.host = NotebookHost(shell, settings.lab)
        self.live_kernel = LiveNamespace(shell)
        self.live_kernel.document = LabDocument(settings.lab)
        self._page_tools = PageTools(settings.lab)
        self.agents: dict[str, Agent] = {}
        self.views: dict[str, Any] = {}
        self.background: dict[str, asyncio.Task[Any]] = {}
        self.rerecording = Rerecording()
        self._runs: WeakSet[CellRun] = WeakSet()
        self._last_agent: Agent | None = None
        atexit.register(self.close)  # while the kernel can still say how the sessions ended

    def before_cell(self, info: Any) -> None:
        """Bind what a cell names: ``mcp``, and results of the last agent such as ``_r7``."""
        agent = self._last_agent
        if "mcp." in info.raw_cell and not self.live_kernel.running:
            self._bind_mentioned()
        if agent is not None and "_r" in info.raw_cell and not self.live_kernel.running:
            self.live_kernel.bind_kept(info.raw_cell, agent.session.handles)

    def _bind_mentioned(self) -> None:
        """Have `mcp` there for a cell that names it, also before any agent has run."""
        if MCP in self.shell.user_ns:
            return
        try:
            self._bind_servers(self.agent_named(self.settings.name))
        except FatalError as error:
            print(f"mcp is not there: {error}", file=sys.stderr)  # noqa: T201 - the cell goes on

    def lend(self) -> Lent:
        """Return what `Agent` objects of this process may use."""
        return Lent(self.host, self.live_kernel, partial(ServingDesk, self))

    # -- cells -------------------------------------------------------------------------------------

    def run_blocking(self, options: Any, cell: str) -> None:
        """Run a ``%%agent`` cell that blocks."""
        if options.background:
            raise UsageError("--background needs a cell of its own at the top level of a notebook.")
        run, prompt, setup = self._prepare(options, cell)
        with self._binding_interrupted(run, options):
            self._finish(run.run_blocking(prompt, setup), options)

    async def run_awaiting(self, options: Any, cell: str) -> None:
        """Run a ``%%agent`` cell that awaits."""
        run, prompt, setup = self._prepare(options, cell)
        if options.background:
            self._start_background(run, prompt, setup, options)
            return
        with self._binding_interrupted(run, options):
            self._finish(await run.run_awaiting(prompt, setup), options)

    def _prepare(self, options: Any, cell: str) -> tuple[CellRun, str, RunSetup]:
        if options.into is not None and not _is_name(options.into):
            raise UsageError(f"--into {options.into}: not a variable's name.")
        try:
            prompt = interpolate(cell.strip(), self.shell.user_ns)
            if not prompt:
                raise FatalError("The cell is empty: write what the agent should do below %%agent.")
            agent = self.agent_named(options.name or self.settings.name, new=options.new)
            if agent.session.busy:
                raise FatalError(
                    f"Agent {agent.name!r} is at work; wait for it, stop it with "
                    f"%agent stop {agent.name}, or use another one (--name)."
                )
            setup, notes = self._setup(agent, options, self._take(agent, options, prompt))
        except FatalError as error:
            raise UsageError(str(error)) from None
        run = CellRun(self.shell, self.host, agent, notes)
        self._runs.add(run)
        self._last_agent = agent
        self.views[agent.name] = run.view
        return run, prompt, setup

    def setup_of(self, agent: Agent) -> RunSetup:
        """Return what a run of `agent` runs with where its cell has no options."""
        return self._setup(agent, self.settings.agent.parser.parse_argstring(""))[0]

    def _take(self, agent: Agent, options: Any, prompt: str) -> tuple[Path, str] | None:
        """Return where the cell is recorded anew, and a note, where that is wanted."""
        path, _ = self._recording(options)
        if path is None:
            return None
        return self.rerecording.begin(agent.name, path, prompt, agent.config.cwd)

    def _setup(
        self, agent: Agent, options: Any, take: tuple[Path, str] | None = None
    ) -> tuple[RunSetup, list[str]]:
        replay, notes = (None, [take[1]]) if take else self._recording(options)
        settings, namespace = self.settings, self.shell.user_ns
        model = options.model or settings.model
        features = settings.features or agent.config.features
        forms = tools_config(model, features)
        named = self._with_notebook(options.tools or settings.tools)
        self._page_tools.give(agent)
        known = {**agent.toolbox.named_in(named), **namespace}
        named, mcp_names = split_tools(named, known)
        wanted = resolve_tools(named, known, live=True, forms=forms)
        setup = agent.setup(
            tools=wanted if options.tools else join_tools(wanted, own_tools(namespace)),
            more=not options.tools,
            mcp_names=mcp_names,
            model=model,
            features=features,
            replay=replay,
            record=take[0] if take else options.record or settings.record or None,
            approval=options.approval or settings.approval,
            sandbox=options.sandbox or settings.sandbox,
            max_turns=settings.max_turns if options.max_turns is None else options.max_turns,
            max_tokens=settings.max_tokens if options.max_tokens is None else options.max_tokens,
            max_cost=settings.max_cost if options.max_cost is None else options.max_cost,
            output=read_type(options.output, namespace),
            network=settings.network,
            output_budget=settings.output_budget,
            context_window=settings.context_window,
            loops=settings.loops,
            python=settings.python,
            allow_dangerous=settings.allow_dangerous,
        )
        self._bind_servers(agent)
        return setup, notes

    def _bind_servers(self, agent: Agent) -> None:
        """Bind the tools of the agent's MCP servers as `mcp`, unless that is the person's name."""
        namespace, there = self.shell.user_ns, self.shell.user_ns.get(MCP)
        if there is not None and not isinstance(there, McpNamespace):
            return
        tools = agent.mcp_tools
        if tools is not None:
            namespace[MCP] = self.shell.user_ns_hidden[MCP] = tools
        elif there is not None:
            del namespace[MCP]

    def _with_notebook(self, named: Any) -> list[Any]:
        """Return the names of tools; with "data" those of the open notebook, where one answers."""
        names = [named] if isinstance(named, str) else list(named)
        return [*names, "notebook"] if "data" in names and self.settings.lab.pages else names

    def _recording(self, options: Any) -> tuple[Path | None, list[str]]:
        """Return the recording to play, and a note that says so."""
        if options.record or self.settings.record:
            return None, []
        chosen = options.replay or self.settings.replay
        if chosen and chosen != "auto":
            path = Path(chosen).expanduser()
            if not path.is_file():
                raise FatalError(
                    f"There is no recording {chosen}; --replay takes a .agent.jsonl file."
                )
        else:
            beside = recording_beside_notebook() if chosen == "auto" else None
            if beside is None:
                return None, []
            path = beside
        note = f"The model's side is played from the recording `{path.name}`; tools run for real."
        return path, [note]

    def agent_named(self, name: str, *, new: bool = False) -> Agent:
        """Return the agent of that name, made at first use; `new` begins its conversation anew."""
        agent = self.agents.get(name)
        if agent is None:
            settings = self.settings
            agent = self.agents[name] = Agent(
                settings.model,
                name=name,
                cwd=settings.cwd,
                instructions=settings.instructions or None,
                writable_roots=settings.writable_roots,
                base_url=settings.base_url or None,
                replay_strict=settings.replay_strict,
                approval=settings.approval,
                sandbox=settings.sandbox,
                network=settings.network,
                hooks=settings.hooks,
                mcp_servers=settings.mcp_servers,
            )
        elif new:
            agent.reset()
        agent.replay_strict = self.settings.replay_strict
        agent.toolbox.budget = self.settings.tool_budget
        agent.use_servers(self.settings.mcp_servers)
        return agent

    @contextmanager
    def _binding_interrupted(self, run: CellRun, options: Any) -> Iterator[None]:
        """Bind `_agent` also where the person interrupts: it says what was done until then."""
        try:
            yield
        except KeyboardInterrupt:
            self.shell.user_ns["_agent"] = run.interrupted
            self._settle(options, None)
            raise

    def _finish(self, result: RunResult, options: Any) -> None:
        self.shell.user_ns["_agent"] = result
        self._settle(options, result)
        if result.status == "failed":
            raise UsageError(result.error)
        if result.status == "aborted":
            raise UsageError("The agent was stopped; Run All ends here.")
        self._bind(result, options)

    def _bind(self, result: RunResult, options: Any) -> None:
        """Bind the answer; where a budget ended the run before it, the cell has said so."""
        if options.into and options.output is None:
            self.shell.user_ns[options.into] = result.text
        elif options.into and not result.budget:
            self.shell.user_ns[options.into] = result.value

    def _settle(self, options: Any, result: RunResult | None) -> None:
        """Keep what was recorded anew, or forget it where the cell failed or was interrupted."""
        name = options.name or self.settings.name
        try:
            ended_well = result is not None and result.status == "completed"
            self.rerecording.settle(name, ended_well=ended_well)
        except FatalError as error:
            raise UsageError(str(error)) from None

    def _start_background(self, run: CellRun, prompt: str, setup: RunSetup, options: Any) -> None:
        async def work() -> None:
            try:
                result = await run.run_awaiting(prompt, setup, background=True)
            except KeyboardInterrupt:
                return
            self._settle(options, result)
            self.shell.user_ns["_agent"] = result
            if result.status == "completed":
                self._bind(result, options)

        name = options.name or self.settings.name
        task = asyncio.get_running_loop().create_task(work(), name=f"background agent {name}")
        self.background[name] = task

    # -- the control line --------------------------------------------------------------------------

    def perform(self, line: str) -> Any:
        """Do what a ``%agent`` line says, and return the value that it asks for, if any."""
        try:
            return control.perform(self, line)
        except FatalError as error:
            raise UsageError(str(error)) from None

    def close(self) -> None:
        """End the agents and what they run; no live widget is left in a cell."""
        atexit.unregister(self.close)
        for agent in self.agents.values():
            agent.close()
        for run in self._runs:
            run.draw_rest()


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)
