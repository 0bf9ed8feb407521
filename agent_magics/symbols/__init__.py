"""Symbols: the functions, classes and variables of source files, and what is known of them.

Read ``provider`` first: the interface that language servers and our own parsers implement.
"""
