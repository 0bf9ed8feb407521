"""Defines the types that all folders share: items, events, ops, errors; no behaviour, no I/O.

Read ``events`` first; ``codec`` brings all of them to JSON and back.
"""
