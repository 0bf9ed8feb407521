"""Client connections to MCP servers: start, restart, calls, stop.

Read ``manager`` first, then ``server`` and ``connection``. The SDK is imported only when a server
starts, in a thread; importing this package is cheap.
"""
