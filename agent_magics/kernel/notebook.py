"""Holds the agents of this kernel, and what their cells share; loaded at the magics' first use."""

import asyncio
import atexit
import os
import sys
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from agent_magics.app import Agent
from agent_magics.engine.channels.redaction import redact_shortened
from agent_magics.engine.past.rewind import Rewind
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.kernel.cell.publishing import CellPublisher, text_bundle
from agent_magics.kernel.cell.request.reading import CellReader
from agent_magics.kernel.cell.run import CellRun
from agent_magics.kernel.earlier_conversation import EarlierConversation
from agent_magics.kernel.lab.cell_reviews import CellReviews
from agent_magics.kernel.lab.cell_ways import CellWay
from agent_magics.kernel.lab.document import LabDocument
from agent_magics.kernel.lab.reviews import answer_review
from agent_magics.kernel.live.changes import RunChange
from agent_magics.kernel.live.namespace import LiveNamespace
from agent_magics.kernel.live.tools import MCP
from agent_magics.kernel.questions.ways import NotebookHost
from agent_magics.kernel.setting_traits import given_in
from agent_magics.models.error_redaction import SHORTEST_KEY
from agent_magics.models.providers.credentials import held_keys
from agent_magics.models.providers.keys import environment_keys
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.protocol.items import InputImage
from agent_magics.render.markdown import as_entities
from agent_magics.settings.sources import DEFAULT, Resolved, Source
from agent_magics.text.secrets import Secrets
from agent_magics.tools.mcp.callables import McpNamespace

if TYPE_CHECKING:  # fifty modules, which most kernels never use
    from agent_magics.rows.planning import Watcher

_CONFIG = "%config"
# A cell chooses among these itself; see `CellReader`.
_CHOSEN_BY_CELLS = ("name", "tools", "replay", "record")


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
        # Agents that stay in the workspace of what they resumed, and the notebook's `cwd` then.
        self.resumed: WeakKeyDictionary[Agent, str] = WeakKeyDictionary()
        self.views: dict[str, Any] = {}
        self.background: dict[str, list[asyncio.Task[Any]]] = {}  # the one at work first
        self.cell_reader = CellReader(shell, settings)
        self.rerecording = self.cell_reader.rerecording
        self._runs: WeakValueDictionary[int, CellRun] = WeakValueDictionary()
        self.last_agent: Agent | None = None
        self.listed: list[str] = []  # conversations, as %agent sessions last showed them
        self.ways_back: dict[str, WayForth] = {}  # from the last rewind of each agent
        self.earlier_conversation = EarlierConversation(settings.lab, self.agents)
        atexit.register(self.close)  # while the kernel can still show how the sessions ended

    def before_cell(self, info: Any) -> None:
        """Bind the names that a cell mentions: ``mcp``, and the last agent's results (``_r7``)."""
        agent = self.last_agent
        if getattr(info, "cell_id", None):
            self.live_kernel.cell_ids[info.raw_cell.rstrip("\n")] = info.cell_id
        if "mcp." in info.raw_cell and not self.live_kernel.running:
            self._bind_mentioned()
        if agent is not None and "_r" in info.raw_cell and not self.live_kernel.running:
            self.live_kernel.bind_kept(info.raw_cell, agent.session.conversation.handles.value_of)

    def _bind_mentioned(self) -> None:
        """Bind `mcp` for a cell that names it before any agent has run."""
        if MCP in self.shell.user_ns:
            return
        try:
            self._bind_servers(self.agent_named())
        except FatalError as error:
            print(f"mcp is not there: {short_message(error)}", file=sys.stderr)  # noqa: T201 - the cell goes on

    def _stop_sub_agent(self, wish: Mapping[str, Any]) -> Mapping[str, Any]:
        """Stop the sub-agent whose record has the id that a page names; from any thread."""
        for agent in tuple(self.agents.values()):
            agent.session.engine.post(agent.sub_agents.stop_by_person, str(wish.get("id")))
        return {}

    def map_watcher(self, agent: Agent, blocks: bool) -> "Watcher":
        """Return what shows a call of `Agent.map` in the cell that makes it."""
        from agent_magics.kernel.cell.mapping import watcher_of_call  # noqa: PLC0415 - most never map

        return watcher_of_call(self.shell, self.host, agent, blocks=blocks)

    def turn_config_of(self, agent: Agent) -> TurnConfig:
        """Return the configuration of a run of `agent` in a cell without options."""
        return self.turn_config(agent, self.settings.agent.parser.parse_argstring(""))[0]

    def turn_config(
        self, agent: Agent, options: Namespace, prompt: str | None = None
    ) -> tuple[TurnConfig, list[str]]:
        """Return the configuration of a cell's turn, and notes for the person."""
        turn_config, notes = self.cell_reader.turn(agent, options, prompt)
        self._bind_servers(agent)
        return turn_config, [*notes, *agent.new_notes()]

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

        Raises:
            FatalError: a setting is invalid, or the agent is at work on what is to end; no
                conversation has ended.
        """
        agent = self.agent_for(name, new=new)
        if new or agent.name not in self.agents:
            with self.closing_unused(agent):
                self.begin_with(agent)
        return agent

    def agent_for(self, name: str, *, new: bool) -> Agent:
        """Return the agent of that name, or one with which `begin_with` may begin."""
        given, name = self.given(), name or self.settings.name
        agent = self.agents.get(name)
        if agent is None or (new and (agent in self.resumed or agent.is_elsewhere(given))):
            agent = Agent(name=name, **{k: given.values[k] for k in ("cwd",) if k in given.values})
        with self.closing_unused(agent):
            self.give(agent)
        return agent

    def give(self, agent: Agent) -> None:
        """Give an agent the notebook's settings, but the `cwd` for which it has `resumed` another.

        Raises:
            FatalError: one of them is invalid, or names another workspace.
        """
        given = self.given()
        values = {**given.values, "name": agent.name}
        if self.resumed.get(agent) == self.settings.cwd:
            values.pop("cwd", None)
        agent.use(Source(given.name, values))

    def begin_with(self, agent: Agent) -> None:
        """End the conversation of the agent's name; go on with this agent, new or the same.

        Raises:
            FatalError: the one that has the name is at work.
        """
        before = self.agents.get(agent.name)
        if before is not None:
            before.reset()
        self.agents[agent.name] = agent
        if before is not None and before is not agent:
            before.close()

    @contextmanager
    def closing_unused(self, agent: Agent) -> Iterator[None]:
        """Close an agent that is not in use yet where the work in this context fails."""
        try:
            yield
        except BaseException:
            if self.agents.get(agent.name) is not agent:
                agent.close()
            raise

    @property
    def workspace(self) -> Path:
        """The workspace of the notebook's own agent."""
        return self.agent_named().config.cwd

    def given(self) -> Source:
        """Return the settings of this notebook for all of its cells."""
        values = given_in(self.settings)
        for name in _CHOSEN_BY_CELLS:
            values.pop(name, None)
        return Source(_CONFIG, values)

    def settings_of(self, agent: Agent) -> Resolved:
        """Return the settings of an agent's next cell, also those among which cells choose."""
        now, given = agent.settings_now(), given_in(self.settings)
        chosen = {name: getattr(self.settings, name) for name in _CHOSEN_BY_CELLS}
        origins = {name: _CONFIG if name in given else DEFAULT for name in chosen}
        settings = replace(now.settings, **{**chosen, "name": agent.name})
        return replace(now, settings=settings, origins={**now.origins, **origins})

    @property
    def secrets(self) -> Secrets:
        """The keys that this process knows, and what the agents' turns had to redact."""
        known = {*environment_keys(os.environ), *held_keys()}
        known.update(*(agent.session.outbox.secrets for agent in self.agents.values()))
        long_enough = (secret for secret in known if len(secret) >= SHORTEST_KEY)
        return Secrets(sorted(long_enough, key=len, reverse=True))

    def publish_text(self, text: str) -> None:
        """Show Markdown in the running cell: no key in it, and of what it quotes nothing hidden."""
        written = (*self.secrets, *map(as_entities, self.secrets))
        shown = redact_shortened(written, text)
        CellPublisher(self.shell).publish(text_bundle(shown), uuid.uuid4().hex)

    def settings_now(self) -> Settings:
        """Return the settings of the next cell.

        Raises:
            FatalError: one of them is invalid.
        """
        return self.agent_named().settings

    def begin_run(self, agent: Agent, pictures: tuple[InputImage, ...] = ()) -> CellRun:
        """Return a new run of an agent in the present cell."""
        run = CellRun(self.shell, self.host, agent, pictures)
        self._runs[id(run)] = run
        return run

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
