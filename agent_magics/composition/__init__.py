"""Builds an agent's parts from its settings: the composition root.

``agent`` has the agent that these parts make: read it first.
"""
