"""The ``%agent`` commands for whole conversations: list, resume, delete, fork, go back.

Read ``sessions`` first.
"""
