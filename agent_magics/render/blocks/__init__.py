"""Builds the display blocks of a turn: text, calls, commands; each kind applies its own events.

Read ``display`` first: it defines a block; ``render.view`` puts the kinds together.
"""
