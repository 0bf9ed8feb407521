"""The tools of MCP servers as tools of an agent, and as Python callables.

Read ``joining`` first: tools join when their server is ready, and leave with it.
"""
