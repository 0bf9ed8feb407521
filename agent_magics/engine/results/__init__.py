"""Builds the result of a run from its events, and parses answers of a type that the caller names.

Read ``run`` first: it holds ``RunResult``.
"""
