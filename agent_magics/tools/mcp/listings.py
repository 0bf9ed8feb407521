"""Parses servers' tool lists on a thread, since schemas may be large; each list once."""

import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agent_magics.dispatch.pool import POOL
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.protocol.mcp import McpStatus, McpTool
from agent_magics.tools.mcp.handler import ToolCard, card_of

_USABLE = frozenset((McpStatus.READY, McpStatus.RESTARTING))


@dataclass(frozen=True, slots=True)
class ReadTools:
    """The parsed tools of one server; `tools` is the list object that they were parsed from."""

    tools: tuple[McpTool, ...]
    cards: tuple[ToolCard, ...]


class McpReader:
    """Parses and keeps the tools of a manager's servers; thread-safe.

    Attributes:
        has_resources: whether some server has, or had, resources.
    """

    def __init__(self, manager: McpConnectionManager) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._read: dict[str, ReadTools] = {}  # by server, in the order of their arrival
        self._reading: dict[str, tuple[tuple[McpTool, ...], Future[None]]] = {}
        self.has_resources = False

    def known(self) -> dict[str, ReadTools]:
        """Return the parsed tools by server, in the order of their arrival."""
        with self._lock:
            return dict(self._read)

    def pending(self, server: str) -> "Future[None] | None":
        """Return a future of the running parse of a server's tools; None where none runs."""
        reading = self._reading.get(server)
        return None if reading is None else reading[1]

    def refresh(self) -> None:
        """Parse the servers' tool lists anew where they have changed, in the background."""
        states = {state.config.name: state for state in self._manager.states()}
        usable = {name for name, state in states.items() if state.status in _USABLE}
        with self._lock:
            for name in {*self._read, *self._reading} - usable:
                self._read.pop(name, None)
                self._reading.pop(name, None)
        for name, state in states.items():
            self.has_resources |= state.has_resources
            if state.status is McpStatus.READY:
                self._begin(name, state.tools)

    def _begin(self, server: str, tools: tuple[McpTool, ...]) -> None:
        with self._lock:
            read, reading = self._read.get(server), self._reading.get(server)
            if (read and read.tools is tools) or (reading and reading[0] is tools):
                return
            done: Future[None] = Future()
            self._reading[server] = tools, done
            POOL.submit(partial(self._read_tools, server, tools, done))

    def _read_tools(self, server: str, tools: tuple[McpTool, ...], done: "Future[None]") -> None:
        cards: list[ToolCard] = []
        for tool in tools:
            with suppress(Exception):  # one tool that cannot be read must not take the others along
                cards.append(card_of(tool))
        with self._lock:
            if self._reading.get(server, (None,))[0] is tools:
                self._read[server] = ReadTools(tools, tuple(cards))
                del self._reading[server]
        done.set_result(None)
