"""Joins all tools of an agent from their sources, by name, and builds the registry of each run."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_magics import tools as builtin
from agent_magics.dispatch.catalog.offer import SEARCH, TOOL_BUDGET, ToolOffer
from agent_magics.dispatch.handlers.dynamic import DynamicTool
from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.dispatch.handlers.handed import Given, HandledTool, to_tool
from agent_magics.dispatch.handlers.registrations import ToolRegistrations, join_tools
from agent_magics.dispatch.registry import ToolHandler, ToolRegistry, ToolRegistryBuilder
from agent_magics.dispatch.tool import Tool, offered_specs
from agent_magics.models.providers.families import ToolsConfig
from agent_magics.project.skills import Skill, describe_problems, find_skills
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import ConfiguredToolSpec, DynamicToolSpec, WebSearchSpec
from agent_magics.tools.catalog.discovery import Discovered, Discovery
from agent_magics.tools.catalog.search import tool_search
from agent_magics.tools.catalog.sources import (
    ToolList,
    names_only_built_in,
    names_sets,
    resolve_tools,
    split_tools,
)
from agent_magics.tools.catalog.stubs import with_stubs

if TYPE_CHECKING:  # a dozen modules, which a program without servers never uses
    from agent_magics.tools.mcp.joining import McpTools
    from agent_magics.tools.mcp.servers import McpServers

# One line for all of them, since the set changes during a conversation.
_MCP_STUB = "mcp.SERVER.TOOL(...) calls a tool of an MCP server; help(mcp.SERVER.TOOL) shows how"


@dataclass(frozen=True, slots=True, eq=False)
class RunTools:
    """The tools of one run; the same object while nothing has changed.

    Attributes:
        offer: selects the specifications that each request carries.
        servers: the tools of MCP servers, which come and go during the run.
        found: whether tools of folders and installed packages are among them.
    """

    registry: ToolRegistry
    offer: ToolOffer
    servers: "McpTools | None"
    found: bool


class ToolCatalog:
    """All tools of an agent by name, joined from their sources and rebuilt when one changes.

    The sources are the list that the agent was given, registered tools, tools found in folders and
    packages, and the agent's MCP servers.

    Args:
        registrations: the registered, hidden and pinned tools.
        servers: the agent's MCP servers.
        folder: the workspace, in which a project's tools stand.
        has_kernel: returns whether there is a live kernel, which adds a tool to the default set.

    Attributes:
        wanted: the agent's own list of tools; None means the default set.
        budget: estimated tokens of all specifications above which they are deferred.
    """

    def __init__(
        self,
        registrations: ToolRegistrations,
        servers: "McpServers",
        folder: Path,
        has_kernel: Callable[[], bool],
    ) -> None:
        self.registrations = registrations
        self.servers = servers
        self.discovery = Discovery(folder)
        self.wanted: ToolList = None
        self.budget = TOOL_BUDGET
        self._has_kernel = has_kernel
        self._handlers: dict[Tool, ToolHandler] = {}
        self._built: tuple[Any, RunTools] | None = None

    # -- which tools there are ---------------------------------------------------------------------

    def register(
        self,
        given: Given,
        callback: Callable[[dict[str, Any]], Any] | None,
        timeout: float | None,
    ) -> None:
        """Register a tool; for the arguments see `Agent.register`.

        Raises:
            FatalError: it is not usable as a tool, or its name is taken.
        """
        if callback is None and timeout is None:
            self.registrations.add(to_tool(given))
        elif isinstance(given, DynamicToolSpec):
            self.registrations.add(DynamicTool(given, callback, timeout))
        else:
            raise FatalError(
                "register(...): a callback and a timeout belong to a DynamicToolSpec; a function "
                "answers itself, and has @tool(timeout=...)."
            )

    def listed(self, forms: ToolsConfig) -> tuple[Tool, ...]:
        """Return the tools that the agent's own list names, without those of MCP servers.

        Args:
            forms: the forms in which the run's model is offered tools.

        Raises:
            FatalError: a name is unknown, or two tools have the same name.
        """
        return join_tools(self._read(self.wanted, {}, forms)[0])

    def has(self, name: str, forms: ToolsConfig) -> bool:
        """Return whether an unregistered tool of this name exists, or a server may still add it.

        Args:
            name: the tool's name.
            forms: the forms in which the run's model is offered tools.

        Raises:
            FatalError: the agent's list or the configuration of servers is invalid.
        """
        found = self.discovery.find().tools if self.wanted is None else ()
        servers = self.mcp_tools(self._mcp_names())
        return any(tool.tool_options.name == name for tool in (*self.listed(forms), *found)) or (
            servers is not None and (servers.handler(name) is not None or servers.may_come(name))
        )

    def check(self, forms: ToolsConfig) -> None:
        """Check that the tools of the agent's own list exist, as far as that is known by now.

        Args:
            forms: the forms in which the run's model is offered tools.

        Raises:
            FatalError: a tool does not exist, or two tools have the same name.
        """
        self.listed(forms)
        if names := self._mcp_names():
            self.mcp_tools(names)

    def mcp_tools(self, names: tuple[str, ...] = ()) -> "McpTools | None":
        """Return the tools of the MCP servers, or only `names`; None where there are no servers.

        An agent with its own list of tools uses only the servers it was given, unless the list
        names tools of others.

        Raises:
            FatalError: the configuration is invalid (with the place), or a name is unknown.
        """
        files = self.wanted is None or bool(self._mcp_names())
        return self.servers.tools(files=files, names=names)

    def _mcp_names(self) -> tuple[str, ...]:
        return split_tools(self.wanted, self._known(self.wanted))[1]

    def warnings(self) -> tuple[str, ...]:
        """Return one sentence for each tool and server that was left out."""
        found = self.discovery.find().warnings
        return (*found, *describe_problems(self.skills()), *self.servers.warnings)

    def skills(self) -> list[Skill]:
        """Return all skills of the workspace, also those that are not used."""
        return find_skills(self.discovery.workspace)

    def _read(
        self,
        wanted: ToolList,
        namespace: Mapping[str, Any],
        forms: ToolsConfig,
        absent: Collection[str] = (),
    ) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
        """Split a list into its tools and the names of tools of MCP servers."""
        known = {**self._known(wanted), **namespace}
        rest, mcp_names = split_tools(wanted, known)
        live = self._has_kernel()
        return resolve_tools(rest, known, live=live, forms=forms, absent=absent), mcp_names

    def _known(self, wanted: ToolList) -> dict[str, Tool]:
        """Return found and registered tools by name; none where `wanted` names only built-in ones.

        Reading the metadata of all installed packages takes tens of milliseconds.
        """
        if names_only_built_in(wanted):
            return {}
        tools = join_tools(self.discovery.find().tools, self.registrations.tools)
        return {tool.tool_options.name: tool for tool in tools}

    # -- what a run gets ---------------------------------------------------------------------------

    def of_run(
        self,
        forms: ToolsConfig,
        wanted: ToolList = None,
        namespace: Mapping[str, Any] | None = None,
        *,
        more: bool = True,
        plan: bool = False,
        has_code: Callable[[], bool],
    ) -> RunTools:
        """Return the tools of a run, cached while nothing changes.

        Args:
            forms: the forms in which the run's model is offered tools.
            wanted: a list to use instead of the agent's own.
            namespace: more tools by name, for the names in that list.
            more: whether to add registered tools, and those found in folders and packages unless
                the agent has a list of its own.
            plan: whether the run only plans: then no tool is among them that may change something,
                and none of a server, whose hints are claims.
            has_code: returns whether sets bring the tools for symbols.

        Raises:
            FatalError: a name is unknown, or two tools have the same name.
        """
        found = more and (wanted is not None or self.wanted is None)
        chosen = self.wanted if wanted is None else wanted
        # They cost about 1,000 tokens a request, and say nothing where there is no code.
        absent = () if not names_sets(chosen) or has_code() else builtin.STRUCTURE
        named, names = self._read(chosen, namespace or {}, forms, absent)
        discovered = self.discovery.find() if found else Discovered()
        tools = join_tools(
            named,
            discovered.tools,
            self.registrations.tools if more else (),
            (builtin.read_skill,) if discovered.skills else (),
        )
        if more:
            hidden = self.registrations.hidden
            tools = tuple(tool for tool in tools if tool.tool_options.name not in hidden)
        if plan:
            from agent_magics.tools.proposal import propose_plan  # noqa: PLC0415 - for plans

            tools = (*(tool for tool in tools if not tool.tool_options.mutating), propose_plan)
        servers = self.mcp_tools(names) if (more or names) and not plan else None
        if servers is not None:
            servers.start()
        key = (tools, forms, self.registrations.pinned, self.budget, servers, found)
        if self._built is None or self._built[0] != key:
            self._built = key, self._build(tools, forms, servers, found)
        return self._built[1]

    def _build(
        self, tools: tuple[Tool, ...], forms: ToolsConfig, servers: "McpTools | None", found: bool
    ) -> RunTools:
        builder = ToolRegistryBuilder()
        known = self._handlers
        self._handlers = {tool: known.get(tool) or handler_of(tool) for tool in tools}
        for tool, handler in self._handlers.items():
            spec = offered_specs(tool, freeform=forms.apply_patch == "freeform")
            builder.push_spec_with_parallel_support(spec, handler.supports_parallel)
            function = tool.as_function() if isinstance(tool, HandledTool) else None
            builder.register_handler(handler.options.name, handler, function)
        names = [tool.tool_options.name for tool in tools]
        if "edit_symbol" in names and "apply_patch" not in names:  # with which it makes its edits
            builder.register_handler("apply_patch", handler_of(builtin.apply_patch))
        own = {tool.tool_options.name for tool in tools if tool.tool_options.own}
        search = None
        if (servers or own != {*names}) and SEARCH not in names:
            builder.register_handler(SEARCH, FunctionToolHandler(tool_search))
            search = ConfiguredToolSpec(tool_search.spec, True)
        if servers is not None:
            servers.reserve(names)
            own |= servers.never_deferred
        specs, registry = builder.build(servers)
        specs = with_stubs(specs, registry.functions, _MCP_STUB if servers else "")
        if forms.web_search:  # it runs at the provider: there is nothing to dispatch to
            native = WebSearchSpec(forms.external_web_access)
            specs = (*specs, ConfiguredToolSpec(native))
            own.add(native.name)
        joining = tuple if servers is None else servers.specs
        offer = ToolOffer(specs, own | self.registrations.pinned, self.budget, search, joining)
        return RunTools(registry, offer, servers, found)


def handler_of(tool: Tool) -> ToolHandler:
    """Return the handler that runs a tool's calls."""
    if isinstance(tool, DynamicTool):
        return tool.make_handler()
    return tool.handler if isinstance(tool, HandledTool) else FunctionToolHandler(tool)
