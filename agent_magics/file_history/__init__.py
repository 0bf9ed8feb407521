"""Changes that turns and commands make to files: detected, recorded in a journal, undone.

Read ``workspace`` first (detection), then ``journal`` (undo and redo).
"""
