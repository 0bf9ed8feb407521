"""Transports of messages to MCP servers: pipes of a program, or HTTP with logins.

Read ``stdio`` first, then ``http``.
"""
