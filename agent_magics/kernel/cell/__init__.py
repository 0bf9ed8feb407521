"""Runs one ``%%agent`` cell: the turn, its outputs, and the sessions that outlive it.

``run`` has the whole sequence: read it first. ``outputs`` decides which output shows which block.
"""
