"""The ``%agent`` commands for what turns changed in files: show, review one by one, undo.

Read ``diff`` first.
"""
