"""Registers the tools of MCP servers when their server is ready, and removes them with it.

Servers start beside the turns. Names and specifications of tools are computed from all that has
been read of the servers; a selection hides some of them and changes no name.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from agent_magics.dispatch.handlers.function import FunctionToolHandler
from agent_magics.dispatch.registry import ToolHandler
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.protocol.errors import FatalError, RespondToModel, full_message
from agent_magics.protocol.mcp import McpServerState, McpStatus
from agent_magics.protocol.tools import ConfiguredToolSpec
from agent_magics.tools.mcp import generic as mcp_generic
from agent_magics.tools.mcp.handler import McpToolHandler, family_of
from agent_magics.tools.mcp.listings import McpReader, ReadTools
from agent_magics.tools.mcp.names import (
    PREFIX,
    WORD,
    Selection,
    may_belong_to,
    no_such_tool,
    qualified_names,
)
from agent_magics.tools.mcp.notifications import describe_changes, describe_removed

STARTING = frozenset((McpStatus.STARTING, McpStatus.RESTARTING))

# Callable wherever there are servers; the second ones are offered where a server has resources.
_ALWAYS = (mcp_generic.mcp_call_tool,)
_OF_RESOURCES = (
    mcp_generic.list_mcp_resources,
    mcp_generic.list_mcp_resource_templates,
    mcp_generic.read_mcp_resource,
)
_ALIASES = {"mcp_read_resource": mcp_generic.read_mcp_resource}
GENERIC = frozenset(fn.tool_options.name for fn in (*_ALWAYS, *_OF_RESOURCES))


@dataclass(frozen=True, slots=True)
class _Index:
    """Data computed from all tool lists; rebuilt when one changes.

    Attributes:
        key: the inputs that it was computed from.
        by_tool: (server, tool) -> name.
    """

    key: tuple[object, ...] = ()
    handlers: Mapping[str, McpToolHandler] = field(default_factory=dict)
    by_tool: Mapping[tuple[str, str], str] = field(default_factory=dict)
    specs: tuple[ConfiguredToolSpec, ...] = ()


class McpTools:
    """The tools of one manager's servers; its synchronous methods are thread-safe.

    Args:
        manager: the connections to the servers.
        hidden: returns the names that are neither offered nor answered: the same set object as long
            as nothing changes.
        reader: parses the servers' tool lists.
        selection: the tools to offer, where not all shall be.

    Attributes:
        named: tools that were requested by their full names.
    """

    def __init__(
        self,
        manager: McpConnectionManager,
        hidden: Callable[[], frozenset[str]] = frozenset,
        reader: McpReader | None = None,
        selection: Selection | None = None,
    ) -> None:
        self.manager = manager
        self._hidden = hidden
        self._reader = reader or McpReader(manager)
        self._selection = selection
        self._selected: dict[tuple[str, ...], McpTools] = {}
        self.named = selection.exact if selection is not None else frozenset()
        self._taken: frozenset[str] = frozenset()
        self._now = _Index()
        self._generic = {
            fn.tool_options.name: FunctionToolHandler(fn)
            for fn in (_ALWAYS if selection else (*_ALWAYS, *_OF_RESOURCES))
        }
        if selection is None:
            self._generic |= {name: FunctionToolHandler(fn) for name, fn in _ALIASES.items()}

    @property
    def never_deferred(self) -> frozenset[str]:
        """The names of those that every request carries: generic ones, and those asked for."""
        return GENERIC | self.named

    def start(self) -> None:
        """Start the servers in the background."""
        self.manager.start(self._servers())

    def select(self, names: Sequence[str]) -> "McpTools":
        """Return a view of these tools alone; the same object for the same names.

        Args:
            names: names of tools, patterns, and "mcp" for all.

        Raises:
            FatalError: a name belongs to no server, or its server does not have it.
        """
        if WORD in names:
            return self
        key = tuple(names)
        found = self._selected.get(key)
        if found is None:
            chosen = Selection(key)
            found = self._selected[key] = McpTools(self.manager, self._hidden, self._reader, chosen)
        found.check()
        return found

    def check(self) -> None:
        """Check that the tools requested by name exist, as far as that is known by now.

        Raises:
            FatalError: one does not; the sentence names those that exist.
        """
        if self._selection is None:
            return
        self._selection.check([state.config.name for state in self.manager.states()])
        for name in self.named:
            is_known = self.handler(name) is not None or name in self._hidden()
            if not (is_known or self._candidates(name)):
                owners = [s.config.name for s in self.states if may_belong_to(name, s.config.name)]
                raise FatalError(no_such_tool(name, owners[0], self._names_of(owners)))

    # -- what a registry and an offer ask for ------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tools that can be called now."""
        return tuple(spec.spec.name for spec in self.specs())

    def specs(self) -> tuple[ConfiguredToolSpec, ...]:
        """Return the specifications that can be offered; the same tuple while nothing changes."""
        return self._index().specs

    def handler(self, name: str) -> ToolHandler | None:
        """Return the handler of the tool `name`, or None."""
        if name in self._hidden():
            return None
        generic: ToolHandler | None = self._generic.get(name)
        return generic or self._index().handlers.get(name)

    def may_come(self, name: str) -> bool:
        """Return whether `name` may be a tool of a server whose tools are not known now."""
        if self._selection is not None and name not in self._selection:
            return False
        return name.startswith(PREFIX) and bool(self._candidates(name))

    async def arrival(self, name: str) -> None:
        """Wait for the servers that `name` may belong to.

        Raises:
            RespondToModel: none of them has such a tool; the sentence says why.
        """
        why = ""
        for server in self._candidates(name):
            why = await self.arrived(server) or why
            if self.handler(name) is not None:
                return
        if why:
            raise RespondToModel(f"There is no tool named {name!r}: {why}")

    async def arrived(self, server: str) -> str:
        """Wait until the tools of a server are known; return why they are not, or ""."""
        try:
            await self.manager.server(server).standing.ready()
        except RespondToModel as error:
            return full_message(error)
        self.refresh()
        reading = self._reader.pending(server)
        if reading is not None:
            await asyncio.shield(asyncio.wrap_future(reading))
        return ""

    @property
    def starting(self) -> list[str]:
        """The names of the servers whose tools are not known yet."""
        return [
            state.config.name
            for state in self.states
            if state.status in STARTING or self._reader.pending(state.config.name)
        ]

    async def settled(self) -> None:
        """Wait until no server is starting any more."""
        for server in self.starting:
            await self.arrived(server)

    # -- what else is asked ------------------------------------------------------------------------

    @property
    def states(self) -> tuple[McpServerState, ...]:
        """The states of the servers."""
        states, chosen = self.manager.states(), self._selection
        if chosen is None:
            return states
        return tuple(state for state in states if chosen.names_server(state.config.name))

    def reserve(self, names: Sequence[str]) -> None:
        """Reserve names that other tools have: no MCP tool takes one of them."""
        taken = frozenset(name for name in names if name.startswith(PREFIX))
        if taken != self._taken:
            self._taken = taken

    def name_of(self, server: str, tool: str) -> str | None:
        """Return the name that the model calls for a server's tool; None where it is not known."""
        return self._index().by_tool.get((server, tool))

    def handlers_of(self, server: str) -> dict[str, McpToolHandler]:
        """Return the handlers of a server's tools, by the server's own names."""
        index = self._index()
        return {
            tool: index.handlers[name]
            for (owner, tool), name in index.by_tool.items()
            if owner == server and name in index.handlers
        }

    def list_tools(self, server: str) -> str:
        """Return the tools of a server as text, one line each."""
        handlers = self.handlers_of(server)
        if not handlers:
            return "It offers no tools."
        lines = [
            f"{name}({', '.join(each.card.parameters.get('properties', {}))}): "
            f"{each.card.description.partition(chr(10))[0]}"
            for name, each in handlers.items()
        ]
        return "Its tools:\n" + "\n".join(lines)

    async def require(self) -> None:
        """Wait for the servers that are configured as required.

        Raises:
            FatalError: one of them is not available.
        """
        await self.manager.require(self._servers())
        for state in self.states:
            if state.config.required and state.config.enabled:
                await self.arrived(state.config.name)

    def notifications(self, reported: dict[str, str]) -> list[str]:
        """Return the server changes that not yet reported to the model; see `describe_changes`."""
        index = self._index()
        counts: dict[str, int] = {}
        for server, tool in index.by_tool:
            counts[server] = counts.get(server, 0) + (index.by_tool[server, tool] in index.handlers)
        known = [state for state in self.states if not self._reader.pending(state.config.name)]
        configured = {state.config.name for state in self.manager.states()}
        return [*describe_removed(configured, reported), *describe_changes(known, counts, reported)]

    # -- what follows from what was read -----------------------------------------------------------

    def refresh(self) -> None:
        """Parse the servers' tool lists anew where they have changed, in the background."""
        self._reader.refresh()

    def _index(self) -> _Index:
        self.refresh()
        read = self._reader.known()
        hidden = self._hidden()
        key = (*read.values(), hidden, self._taken, self._reader.has_resources)
        now = self._now
        if len(key) != len(now.key) or any(a is not b for a, b in zip(key, now.key, strict=True)):
            now = self._now = self._make_index(key, read, hidden)
        return now

    def _make_index(
        self, key: tuple[object, ...], read: Mapping[str, ReadTools], hidden: frozenset[str]
    ) -> _Index:
        configs = {state.config.name: state.config for state in self.states}
        cards = {
            (server, card.tool.name): card for server, each in read.items() for card in each.cards
        }
        families = {server: family_of(server, each.cards) for server, each in read.items()}
        by_tool = qualified_names(list(cards), self._taken)
        if self._selection is not None:
            by_tool = {place: name for place, name in by_tool.items() if name in self._selection}
        before = self._now.handlers
        handlers: dict[str, McpToolHandler] = {}
        for place, name in by_tool.items():
            known = before.get(name)
            if name in hidden or place[0] not in configs:
                continue
            if known is None or known.card is not cards[place]:
                known = McpToolHandler(cards[place], name, configs[place[0]], self.manager)
            known.family = families[place[0]]
            handlers[name] = known
        with_resources = self._reader.has_resources and self._selection is None
        generic = (*_ALWAYS, *(_OF_RESOURCES if with_resources else ()))
        specs = [
            ConfiguredToolSpec(fn.spec, fn.tool_options.parallel)
            for fn in generic
            if fn.tool_options.name not in hidden
        ]
        specs += [
            ConfiguredToolSpec(each.spec, each.supports_parallel) for each in handlers.values()
        ]
        return _Index(key, handlers, by_tool, tuple(specs))

    def _servers(self) -> list[str] | None:
        """Return the servers of the selection; None means all."""
        return None if self._selection is None else [s.config.name for s in self.states]

    def _names_of(self, servers: Collection[str]) -> list[str]:
        """Return the names of all tools of some servers, selected or not."""
        read = self._reader.known().items()
        tools = [(server, card.tool.name) for server, each in read for card in each.cards]
        return [
            n for (owner, _), n in qualified_names(tools, self._taken).items() if owner in servers
        ]

    def _candidates(self, name: str) -> list[str]:
        return [
            state.config.name
            for state in self.states
            if (state.status is not McpStatus.READY or self._reader.pending(state.config.name))
            and may_belong_to(name, state.config.name)
        ]
