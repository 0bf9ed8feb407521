"""Configuration of MCP servers: which there are, by whom, in which file.

Read ``sources`` first, then ``table``: one server's settings, validated.
"""
