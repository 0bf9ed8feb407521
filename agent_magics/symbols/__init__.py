"""Symbols: the functions, classes and variables of source files, and what is known of them.

Read ``types`` first, then ``parsing`` (our own parsers) and ``servers`` (language servers).
"""
