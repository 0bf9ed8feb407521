"""Completes what a person types in ``%%agent`` cells and ``%agent`` lines.

Begin with ``cells``.
"""
