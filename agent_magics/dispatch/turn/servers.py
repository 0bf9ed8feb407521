"""Defines the interface to an agent's MCP servers, as a turn and its calls use it."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from agent_magics.protocol.ops import Answer

if TYPE_CHECKING:  # a run without servers imports neither
    from agent_magics.mcp.client.manager import McpConnectionManager
    from agent_magics.protocol.mcp import McpServerState


class AgentServers(Protocol):
    """The MCP servers of an agent and their tools."""

    @property
    def manager(self) -> "McpConnectionManager":
        """The connections to the servers."""

    @property
    def states(self) -> "tuple[McpServerState, ...]":
        """The state of each server."""

    @property
    def starting(self) -> list[str]:
        """The names of the servers whose tools are not known yet."""

    def name_of(self, server: str, tool: str) -> str | None:
        """Return the name that the model calls for a server's tool; None where it is not known."""

    def handler(self, name: str) -> object | None:
        """Return the handler of the tool `name`, or None."""

    def list_tools(self, server: str) -> str:
        """Return the tools of a server as text, one line each."""

    async def arrived(self, server: str) -> str:
        """Wait until the tools of a server are known; return why they are not, or ""."""

    async def settled(self) -> None:
        """Wait until no server is starting any more."""

    async def require(self) -> None:
        """Wait for the servers that are configured as required.

        Raises:
            FatalError: one of them is not available.
        """

    def notifications(self, reported: dict[str, str]) -> list[str]:
        """Return the server changes that the model was not notified of yet.

        Args:
            reported: the state last reported in this conversation, by server; updated in place.
        """


class QuestionGate(Protocol):
    """A limit on the questions of one MCP server."""

    async def put(self, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """Ask a question and return its answer; None where the limit refused it."""
