"""Computes the confinement of each command.

Read ``plan`` first. ``exec/launcher`` enforces it.
"""
