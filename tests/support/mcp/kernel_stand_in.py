"""Stands in for a kernel with an MCP server: starts it, and waits to be killed."""

import os
import sys
import threading
from pathlib import Path

from agent_magics.engine.thread import shared_engine
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.protocol.mcp import McpServerConfig

program, mode, folder = sys.argv[1:]
config = McpServerConfig(
    "chaos", sys.executable, ("-S", program, mode, folder), startup_timeout_sec=3600
)
manager = McpConnectionManager(
    [config], spawn=shared_engine().spawn, roots=[Path(folder)], environment=os.environ
)
manager.start()
threading.Event().wait()
