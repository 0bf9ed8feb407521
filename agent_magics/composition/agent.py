"""Defines what front ends and servers use of an agent, made from its settings."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from agent_magics.approval.read_rules import ReadRules
from agent_magics.approval.rules import RuleBook
from agent_magics.composition.briefing import Briefing
from agent_magics.delegation.files import find_types
from agent_magics.delegation.pool import AgentPool
from agent_magics.delegation.turn_agents import PoolDelegates
from agent_magics.dispatch.context import LiveKernel
from agent_magics.dispatch.hooks import read_hooks
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.tool import Tool
from agent_magics.engine.channels.outbox import Listener
from agent_magics.engine.channels.redaction import redact
from agent_magics.engine.foreground.host import Host, ProgramHost
from agent_magics.engine.foreground.waiting import Foreground
from agent_magics.engine.front_end import FRONT_ENDS
from agent_magics.engine.results.structured import OutputType
from agent_magics.engine.session import Session
from agent_magics.engine.thread import shared_engine
from agent_magics.engine.turn_config import TurnConfig
from agent_magics.exec.environment import command_environment
from agent_magics.files.paths import open_notebook
from agent_magics.files.trusted_imports import distrust
from agent_magics.mcp.config.sources import read_given
from agent_magics.model_clients import ModelClients
from agent_magics.models.base import Model
from agent_magics.models.error_redaction import SHORTEST_KEY
from agent_magics.models.providers.endpoints import server_address
from agent_magics.models.providers.families import ToolsConfig, tools_config
from agent_magics.project.instructions import InstructionFile
from agent_magics.protocol.config import RunConfig, SandboxPolicy, Settings, run_config
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.events import Event, Question
from agent_magics.protocol.ops import Answer
from agent_magics.protocol.records import RecordBegun
from agent_magics.protocol.tools import ConfiguredToolSpec
from agent_magics.records.places import rollout_folder
from agent_magics.records.retention import remove_old
from agent_magics.settings.agent import AgentSettings
from agent_magics.settings.recording import recordable
from agent_magics.settings.sources import Resolved, Source, resolve
from agent_magics.settings.validation import check_price
from agent_magics.symbols.servers.specs import read_table
from agent_magics.text.secrets import Secrets
from agent_magics.tools.catalog.agent_tools import RunTools, ToolCatalog
from agent_magics.tools.catalog.sources import ToolList
from agent_magics.tools.files.path_judge import PathJudge
from agent_magics.tools.mcp.servers import McpServers

# What holds for runs of rows, whatever the agent's settings are: nobody is there to be asked.
_OF_ROWS = {"approval": "never"}

if TYPE_CHECKING:
    from agent_magics.mcp.client.manager import McpConnectionManager
    from agent_magics.rows.mapping import RowMapping
    from agent_magics.rows.planning import MapOptions
    from agent_magics.rows.prompts import Given as Prompt
    from agent_magics.symbols.servers.project import LanguageServers
    from agent_magics.tools.files.access import ReadJudge
    from agent_magics.tools.mcp.callables import McpNamespace


class ComposedAgent:
    """The parts of an agent, as front ends and servers use them; `Agent` is its subclass.

    Args:
        values: keywords of `Agent`.
        model: a model object; None where the settings name a model.

    Attributes:
        name: the agent's name.
        settings: the settings of the next run.
        session: runs its turns.
        sub_agents: the agents that work for it.
        catalog: its tools.

    Raises:
        FatalError: a setting is invalid; the message says which and why.
    """

    def __init__(self, values: Mapping[str, Any], model: Model | None) -> None:
        self._held = AgentSettings(values)
        self.settings = self._held.resolve().settings
        self.name, cwd = self.settings.name, self.settings.cwd
        self._models = ModelClients(model)
        self._tokens: list[str] = []  # of the servers of its tools
        self.session = Session(
            shared_engine(), self.name, rollout_folder(), self._begin_record, self._remove_old
        )
        self.session.configure = self._change
        self.sub_agents = AgentPool(self.session, rollout_folder(), lambda: find_types(cwd).types)
        registrations = self.session.registrations
        self._servers = McpServers(
            cwd,
            self.settings.mcp_servers or None,
            spawn=self.session.engine.spawn,
            hidden=lambda: registrations.hidden,
            changed=self.session.turns.tell_server,
        )
        self.catalog = ToolCatalog(registrations, self._servers, cwd, lambda: FRONT_ENDS.has_kernel)
        self._briefing = Briefing(self.catalog)
        self._prepared: tuple[tuple[Any, ...], TurnConfig] | None = None  # what it is made of
        self._take(self.settings)
        self.catalog.check(self._forms(self.settings))  # raises here, not at the first run

    # -- settings ----------------------------------------------------------------------------------

    @property
    def config(self) -> RunConfig:
        """The settings of a run, as its tools read them."""
        return run_config(self.settings)

    def _change(self, changes: Mapping[str, Any]) -> None:
        before = self._held.given
        self.use(self._held.changed(changes))
        try:
            self.catalog.check(self._forms(self.settings))
        except FatalError:
            self.use(before)
            raise

    def use(self, given: Source) -> None:
        """Override the constructor's settings from the next run on.

        Args:
            given: the settings, with the name of their source.

        Raises:
            FatalError: one of them is invalid, or names another workspace; nothing is changed.
        """
        given = self._held.over_constructed(self.name, given)
        self._take(resolve([given]).settings)
        self._held.given = given

    def is_elsewhere(self, given: Source) -> bool:
        """Return whether settings name another workspace than this agent's."""
        return self._held.is_elsewhere(given)

    def settings_now(self) -> Resolved:
        """Return the effective settings of the next run, with the source of each.

        Raises:
            FatalError: one of them is invalid.
        """
        return self._held.resolve()

    def _take(self, settings: Settings) -> None:
        """Apply settings, all or none."""
        check_price(settings, server_address(settings.base_url))
        hooks = read_hooks(settings.hooks)
        read_given(settings.cwd, settings.mcp_servers)
        read_table(settings.language_servers)
        distrust(settings.roots)
        self.settings, self._hooks = settings, hooks
        self._servers.give(settings.mcp_servers or None)
        self.catalog.wanted, self.catalog.budget = settings.tools, settings.tool_budget

    # -- a run -------------------------------------------------------------------------------------

    def turn_config(
        self,
        *,
        tools: ToolList = None,
        namespace: Mapping[str, Any] | None = None,
        more: bool = True,
        output: Any = None,
        plan: bool = False,
        **cell: Any,
    ) -> TurnConfig:
        """Return the configuration of one run; the arguments hold for that run alone.

        Args:
            tools: a list to use instead of the agent's own.
            namespace: more tools by name, for the names in `tools`.
            more: whether to add registered tools, and those found in folders and packages unless
                the agent has a list of its own.
            output: the type of the answer; None is text.
            plan: whether the run only reads, and ends with a plan.
            cell: settings that override the agent's.

        Raises:
            FatalError: a setting is invalid.
        """
        answer = None if output is None else OutputType(output)
        resolved = self._held.resolve(cell)
        settings = resolved.settings
        run = self.catalog.of_run(
            self._forms(settings), tools, namespace, more=more, plan=plan, has_code=self._has_code
        )
        parts = (
            resolved,
            run,
            self._briefing.instructions(settings, run, self.session.conversation),
            self._secrets(settings, resolved.environment),
            FRONT_ENDS.current().live_kernel,
            run.offer.now().all,  # other tools may have joined
        )
        if self._prepared is None or self._prepared[0] != parts:
            self._prepared = parts, self._prepare(*parts)
        prepared = self._prepared[1]
        return prepared if answer is None else replace(prepared, output=answer)

    def _has_code(self) -> bool:
        """Return whether the workspace held code when the conversation began.

        That stays as it was, so that the provider's prompt cache holds.
        """
        # Late: a program that names no set of tools needs no parsers.
        from agent_magics.symbols.parsing import holds_source  # noqa: PLC0415

        conversation = self.session.conversation
        if conversation.has_code is None or not conversation.history.items:
            conversation.has_code = holds_source(self.catalog.discovery.workspace)
        return conversation.has_code

    def _prepare(
        self,
        resolved: Resolved,
        run: RunTools,
        instructions: str | None,
        secrets: tuple[str, ...],
        live_kernel: LiveKernel | None,
        specs: Sequence[ConfiguredToolSpec],
    ) -> TurnConfig:
        """Return the configuration of all runs that have these parts."""
        settings = resolved.settings
        config = run_config(settings, instructions=instructions)
        check_price(settings, server_address(settings.base_url))
        prepared = TurnConfig(
            config=config,
            open_model=lambda: self._models.open(settings),
            offer=run.offer,
            registry=run.registry,
            specs=specs,
            env=command_environment(resolved.environment),
            validate_path=PathJudge(config),
            secrets=secrets,
            live_kernel=live_kernel,
            hooks=read_hooks(settings.hooks),
            warnings=partial(
                self._briefing.new_warnings, resolved.warnings, config.cwd, found=run.found
            ),
            servers=run.servers,
            agents=PoolDelegates(self.sub_agents),
            symbols=partial(self._language_servers, settings),
        )
        distrust(config.roots)  # last, since what stands above may refuse them
        return prepared

    @property
    def project(self) -> tuple[InstructionFile, ...]:
        """The instruction files that the last run read."""
        return self._briefing.project

    def new_notes(self) -> tuple[str, ...]:
        """Return what the person was not yet told of the project's files that the run reads."""
        return self._briefing.new_notes()

    def _secrets(self, settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
        """Return the texts to redact: keys, tokens, and the secrets of MCP servers."""
        keys = self._models.secrets(settings, environment)
        return Secrets((*keys, *self._tokens, *self._servers.secrets()))

    def _language_servers(
        self, settings: Settings, read_rules: Callable[[], ReadRules]
    ) -> "LanguageServers":
        """Return the language servers of the workspace; none is started yet."""
        # Late: most turns ask none.
        from agent_magics.symbols.servers.process import Workplace  # noqa: PLC0415
        from agent_magics.symbols.servers.project import LanguageServers  # noqa: PLC0415
        from agent_magics.tools.commands.unreadable import find_unreadable  # noqa: PLC0415

        place = Workplace(
            settings.roots,
            settings.sandbox is not SandboxPolicy.DANGER_FULL_ACCESS,
            lambda: find_unreadable(read_rules()).places,
        )
        table = read_table(settings.language_servers)
        return LanguageServers(table, place, self.session.engine.spawn)

    def foreground(
        self,
        show: Callable[[Event], object] | None = None,
        tick: Callable[[], Any] | None = None,
        host: Host | None = None,
        after: Listener | None = None,
        hear: Listener | None = None,
    ) -> Foreground:
        """Return what serves a run on the thread that waits; for arguments see `Foreground`."""
        host = host or self._host()
        watchers = () if self._hooks is None else self._hooks.on_events
        return Foreground(self.session, host, show, tick, after, watchers, hear)

    def mapping(
        self,
        prompt: "Prompt",
        rows: Any,
        *,
        output: Any = None,
        options: "MapOptions",
        cell: Mapping[str, Any] | None = None,
        host: Host | None = None,
    ) -> "RowMapping":
        """Return one map over rows, ready to run.

        Args:
            prompt, rows, output, options: see `Agent.map`.
            cell: settings that override the agent's.
            host: what asks the person; None means the agent's own.

        Raises:
            FatalError: an argument is invalid.
        """
        # Late: forty modules, which most programs never use.
        from agent_magics.rows.mapping import RowMapping  # noqa: PLC0415
        from agent_magics.rows.planning import Asking, Watcher  # noqa: PLC0415

        settings = self._held.resolve(cell).settings
        hosts = self._host if host is None else lambda: host

        def turn_config(tools: ToolList) -> TurnConfig:
            return self.turn_config(tools=tools, more=tools is None, **{**(cell or {}), **_OF_ROWS})

        def watcher(blocks: bool) -> Watcher:
            make = FRONT_ENDS.current().map_watcher
            return Watcher() if make is None else make(self, blocks)

        judge = self.read_judge()
        asking = Asking(settings, self._models, hosts, self.session, judge, turn_config, watcher)
        return RowMapping(asking, prompt, rows, output, options)

    def read_judge(self) -> "ReadJudge":
        """Return what keeps files from the model where nobody is asked: in maps and prompts."""
        from agent_magics.tools.files.access import ReadJudge  # noqa: PLC0415 - late, as above

        config = self.config
        return ReadJudge(RuleBook(config.cwd).read_rules(self.name), config.roots)

    def _host(self) -> Host:
        """Return the host that answers questions by default: the front end's, or the program's."""
        on_question = self.settings.on_question
        front_end_host = FRONT_ENDS.current().host if on_question is None else None
        return front_end_host or ProgramHost(on_question)

    # -- its tools ---------------------------------------------------------------------------------

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of this agent's own list, in order."""
        return self.catalog.listed(self._forms(self.settings))

    @staticmethod
    def _forms(settings: Settings) -> ToolsConfig:
        return tools_config(settings.model, settings.features)

    @property
    def mcp(self) -> "McpConnectionManager | None":
        """The connections to this agent's MCP servers; None where it has none."""
        servers = self.catalog.mcp_tools()
        return None if servers is None else servers.manager

    @property
    def mcp_tools(self) -> "McpNamespace | None":
        """The MCP servers' tools as Python functions: ``agent.mcp_tools.github.search(q="...")``.

        They run directly, as functions do, without approval; None where there are no servers.

        Raises:
            FatalError: the configuration is invalid; the sentence says where.
        """
        servers = self.catalog.mcp_tools()
        if servers is None:
            return None
        from agent_magics.tools.mcp.callables import McpNamespace  # noqa: PLC0415 - late, as above

        servers.manager.start()
        return McpNamespace(servers, self.session.engine.spawn, ask=self._answer)

    def _answer(self, question: Question) -> Answer:
        """Answer a question of a server that is called by hand."""
        return self._host().answer_blocking(question)

    # -- its record --------------------------------------------------------------------------------

    def _begin_record(self, conversation: str) -> RecordBegun:
        """Return the first line of a conversation's record."""
        kept, lost = recordable(self._held.given.values)
        keys = self._secrets(self.settings, os.environ)
        secrets = tuple(key for key in keys if len(key) >= SHORTEST_KEY)
        notebook = open_notebook()
        current = self.session.conversation
        return RecordBegun(
            conversation=conversation,
            agent=self.name,
            at=time.time(),
            cwd=str(self.settings.cwd),
            notebook="" if notebook is None else str(notebook),
            settings=redact(secrets, kept),
            lost=lost,
            memory=current.memory if current.id == conversation else None,
            has_code=current.has_code if current.id == conversation else None,
        )

    def _remove_old(self) -> None:
        """Delete old records in the background."""
        POOL.submit(remove_old, rollout_folder(), self.settings.rollout_days)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop running turns, sub-agents, servers and commands, and close connections."""
        self.sub_agents.shut_down()
        self._servers.close(wait=not self.session.engine.is_current())
        self.session.close()
        self._models.close(self.session.engine.spawn)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
