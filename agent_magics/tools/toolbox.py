"""What an agent's tools are made into for a run: specifications, handlers, and the offer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_magics import tools as builtin
from agent_magics.dispatch.dynamic import DynamicTool
from agent_magics.dispatch.function import FunctionToolHandler
from agent_magics.dispatch.offer import SEARCH, TOOL_BUDGET, ToolOffer
from agent_magics.dispatch.registry import ToolHandler, ToolRegistry, ToolRegistryBuilder
from agent_magics.dispatch.shelf import ToolShelf, join_tools
from agent_magics.dispatch.stubs import with_stubs
from agent_magics.dispatch.tool import as_tool, offered_specs
from agent_magics.models.families import ToolsConfig
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.tools import ConfiguredToolSpec, DynamicToolSpec, WebSearchSpec
from agent_magics.tools.discovery import Discovery
from agent_magics.tools.finding import tool_search
from agent_magics.tools.mcp_joining import GENERIC, McpTools

Tool = Callable[..., Any]

# One line for all of them: which they are changes while a conversation goes on.
_MCP_STUB = "mcp.SERVER.TOOL(...) calls a tool of an MCP server; help(mcp.SERVER.TOOL) shows how"


@dataclass(frozen=True, slots=True)
class RunTools:
    """The tools of one run.

    Attributes:
        offer: which of the specifications go out.
    """

    registry: ToolRegistry
    offer: ToolOffer


class Toolbox:
    """An agent's tools, built when they change and not at each run.

    Args:
        shelf: what was registered, hidden and pinned.
        folder: the workspace, where a project's tools stand.

    Attributes:
        budget: estimated tokens of all specifications above which they are deferred.
    """

    def __init__(self, shelf: ToolShelf, folder: Path) -> None:
        self.shelf = shelf
        self.budget = TOOL_BUDGET
        self.discovery = Discovery(folder)
        self._handlers: dict[Tool, ToolHandler] = {}
        self._built: tuple[Any, RunTools] | None = None
        self._told: set[str] = set()

    # -- which tools there are ---------------------------------------------------------------------

    def register(
        self,
        tool: Tool | DynamicToolSpec,
        callback: Callable[[dict[str, Any]], Any] | None,
        timeout: float | None,
    ) -> None:
        """Add a function, or a tool that is data.

        Raises:
            FatalError: it cannot be a tool, or another one has its name.
        """
        if isinstance(tool, DynamicToolSpec):
            self.shelf.add(DynamicTool(tool, callback, timeout))
        elif callback is not None or timeout is not None:
            raise FatalError(
                "register(...): a callback and a timeout belong to a DynamicToolSpec; a function "
                "answers itself, and has @tool(timeout=...)."
            )
        else:
            self.shelf.add(as_tool(tool))

    def joined(self, tools: Sequence[Tool], *, discover: bool) -> tuple[Tool, ...]:
        """Return `tools` with those that were registered, and those that are found.

        Raises:
            FatalError: two tools have one name.
        """
        found = self.discovery.find().tools if discover else ()
        joined = join_tools(tools, found, self.shelf.tools)
        return tuple(t for t in joined if t.tool_options.name not in self.shelf.hidden)

    def named_in(self, wanted: Any) -> dict[str, Tool]:
        """Return the found and registered tools by name, where `wanted` names what is not built in.

        Else nothing is looked for: reading the metadata of all packages takes tens of milliseconds.
        """
        entries = [wanted] if isinstance(wanted, str) else wanted or ()
        known = (*builtin.TOOL_SETS, *builtin.__all__)
        if all(not isinstance(each, str) or each in known for each in entries):
            return {}
        tools = join_tools(self.discovery.find().tools, self.shelf.tools)
        return {tool.tool_options.name: tool for tool in tools}

    def new_warnings(self) -> tuple[str, ...]:
        """Return what discovery left out and nobody was told yet."""
        new = [word for word in self.discovery.find().warnings if word not in self._told]
        self._told.update(new)
        return tuple(new)

    # -- what a run gets ---------------------------------------------------------------------------

    def build(
        self, tools: tuple[Tool, ...], forms: ToolsConfig, servers: McpTools | None = None
    ) -> RunTools:
        """Return the tools of a run; the same as last time while they are the same.

        Args:
            tools: what `joined` returned.
            forms: in which forms the run's model is offered tools.
            servers: the tools of MCP servers, which join and leave while the run goes on.
        """
        key = (tools, forms, self.shelf.pinned, self.budget, servers)
        if self._built is None or self._built[0] != key:
            self._built = key, self._build(tools, forms, servers)
        return self._built[1]

    def _build(
        self, tools: tuple[Tool, ...], forms: ToolsConfig, servers: McpTools | None
    ) -> RunTools:
        builder = ToolRegistryBuilder()
        known = self._handlers
        self._handlers = {tool: known.get(tool) or handler_of(tool) for tool in tools}
        for tool, handler in self._handlers.items():
            spec = offered_specs(tool, freeform=forms.apply_patch == "freeform")
            builder.push_spec_with_parallel_support(spec, handler.supports_parallel)
            builder.register_handler(handler.options.name, handler)
        own = {tool.tool_options.name for tool in tools if tool.tool_options.own}
        others = [tool for tool in tools if not tool.tool_options.own]
        search = None
        if (others or servers) and SEARCH not in (tool.tool_options.name for tool in tools):
            builder.register_handler(SEARCH, FunctionToolHandler(tool_search))
            search = ConfiguredToolSpec(tool_search.spec, True)
        if servers is not None:
            servers.reserve([tool.tool_options.name for tool in tools])
            own |= GENERIC | servers.named
        specs, registry = builder.build(servers)
        specs = with_stubs(specs, registry.functions, _MCP_STUB if servers else "")
        if forms.web_search:  # it runs at the provider: there is nothing to dispatch to
            native = WebSearchSpec(forms.external_web_access)
            specs = (*specs, ConfiguredToolSpec(native))
            own.add(native.name)
        joining = tuple if servers is None else servers.specs
        offer = ToolOffer(specs, own | self.shelf.pinned, self.budget, search, joining)
        return RunTools(registry, offer)


def handler_of(tool: Tool) -> ToolHandler:
    """Return what answers the calls of a tool."""
    if isinstance(tool, DynamicTool):
        return tool.make_handler()
    return FunctionToolHandler(tool)
