"""``%agent mcp``: lists, changes and reads the MCP servers of an agent.

Read ``control`` first: it has the table of all its commands.
"""
