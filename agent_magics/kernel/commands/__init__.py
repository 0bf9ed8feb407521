"""The ``%agent`` commands, one module each or one folder for a family.

Read ``control`` first: it has the table of all commands.
"""
