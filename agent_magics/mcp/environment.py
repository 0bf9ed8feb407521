"""What the servers of one agent have in common: where they run, and whom they tell."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agent_magics.protocol.mcp import McpServerState

Spawn = Callable[[Coroutine[Any, Any, Any]], "Future[Any]"]


class SecretStore(Protocol):
    """Keeps the tokens of logins where only the person can read them.

    Its methods may block (a keyring asks): they are called in a thread.
    """

    def get(self, name: str) -> str | None:
        """Return what is kept under `name`, None where there is nothing."""

    def put(self, name: str, value: str) -> None:
        """Keep `value`."""

    def delete(self, name: str) -> None:
        """Forget it; nothing happens where there is nothing."""


def _tell_nobody(state: McpServerState) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every server of an agent is given.

    Attributes:
        spawn: starts a coroutine on the loop that owns the connections; from any thread.
        roots: the folders that servers are told to work in; the first one is where they run.
        environment: what their variables are taken from.
        changed: is told of every new state of a server, on the loop.
        secrets: where tokens of logins are; None keeps none.
    """

    spawn: Spawn
    roots: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    changed: Callable[[McpServerState], None] = _tell_nobody
    secrets: SecretStore | None = None
