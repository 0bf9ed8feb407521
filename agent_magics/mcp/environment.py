"""Defines what an agent's MCP servers share: folders, environment, callbacks for changes."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agent_magics.protocol.mcp import McpServerState

Spawn = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


class SecretStore(Protocol):
    """Interface of a store for login tokens that only the person can read.

    Its methods may block (a keyring may ask the person), so they are called in a thread.
    """

    def get(self, name: str) -> str | None:
        """Return the value stored under `name`, or None."""

    def put(self, name: str, value: str) -> None:
        """Store `value`."""

    def delete(self, name: str) -> None:
        """Delete the value, if there is one."""


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
        secrets: stores the tokens of logins; None stores none.
    """

    spawn: Spawn
    roots: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    changed: Callable[[McpServerState], None] = _tell_nobody
    secrets: SecretStore | None = None
