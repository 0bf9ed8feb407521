"""Runs commands: starts them through the launcher process, reads their output, ends them.

Read ``command`` first: one command from start to result. ``sandbox/`` computes what it may access.
"""
