"""Asks a model the same about each of many rows: ``agent.map``.

Read ``asking`` first: what one row asks, what it gets, and the interface of what asks.
"""
