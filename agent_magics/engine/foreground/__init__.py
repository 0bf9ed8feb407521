"""Waits for runs: shows their events and does the work that belongs to the calling thread.

Read ``waiting`` first; ``host`` is what a front end provides for it.
"""
