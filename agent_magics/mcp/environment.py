"""Defines what an agent's MCP servers share: folders, environment, callbacks for changes."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_magics.protocol.mcp import McpServerState

Spawn = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


def _tell_nobody(state: McpServerState) -> None:
    pass


@dataclass(frozen=True, slots=True)
class McpEnvironment:
    """Context shared by all servers of an agent.

    Attributes:
        spawn: starts a coroutine on the event loop that owns the connections; from any thread.
        roots: the folders reported to servers; they run in the first one.
        environment: source of their environment variables.
        changed: called on the loop with every new state of a server.
    """

    spawn: Spawn
    roots: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    changed: Callable[[McpServerState], None] = _tell_nobody
