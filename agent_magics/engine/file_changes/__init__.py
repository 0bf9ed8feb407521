"""Tracks what the turns of a conversation change in files, as diffs and for undo.

Read ``turn`` first: it compares files before and after each call. The journal itself is in
``file_history``.
"""
