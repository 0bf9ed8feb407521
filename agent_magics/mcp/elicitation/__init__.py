"""Elicitation: forms by which MCP servers, and the model, ask the person; checks of the answers.

Read ``forms`` first.
"""
