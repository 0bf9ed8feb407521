"""Protects files that the sandbox cannot: compares them before and after a command, and restores
them.

Read ``tripwire`` first.
"""
