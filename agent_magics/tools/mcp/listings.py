"""Reads what servers offer, on a thread, since a schema may be large; each list of tools once."""

import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from agent_magics.backends.mcp import McpConnectionManager
from agent_magics.dispatch.pool import POOL
from agent_magics.protocol.mcp import McpStatus, McpTool
from agent_magics.tools.mcp_handler import ToolCard, card_of

_USABLE = frozenset((McpStatus.READY, McpStatus.RESTARTING))


@dataclass(frozen=True, slots=True)
class ReadTools:
    """What was read of one server; `tools` is the very list that it was read from."""

    tools: tuple[McpTool, ...]
    cards: tuple[ToolCard, ...]


class McpReader:
    """What is known of the tools of a manager's servers; safe from every thread.

    Attributes:
        has_resources: some server has, or had, resources.
    """

    def __init__(self, manager: McpConnectionManager) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._read: dict[str, ReadTools] = {}  # by server, in the order of their arrival
        self._reading: dict[str, tuple[tuple[McpTool, ...], Future[None]]] = {}
        self.has_resources = False

    def known(self) -> dict[str, ReadTools]:
        """Return what has been read, by server, in the order of their arrival."""
        with self._lock:
            return dict(self._read)

    def pending(self, server: str) -> "Future[None] | None":
        """Return what is done when the tools of a server have been read; None where they are."""
        reading = self._reading.get(server)
        return None if reading is None else reading[1]

    def refresh(self) -> None:
        """Read what servers offer anew, where that has changed; returns at once."""
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
