"""Restores earlier states of a conversation: from its record, and from before a turn.

Read ``restoring`` first.
"""
