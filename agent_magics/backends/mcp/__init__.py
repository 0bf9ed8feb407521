"""Connections to the servers of the Model Context Protocol that a person configured.

The SDK is imported only when a server starts, in a thread; importing this package is cheap.
"""

from agent_magics.backends.mcp.manager import McpConnectionManager
from agent_magics.backends.mcp.surroundings import SecretStore

__all__ = ["McpConnectionManager", "SecretStore"]
