"""``%agent recording``: compares and cleans recordings, and records cells anew.

Read ``report`` first: it has the table of all its commands.
"""
