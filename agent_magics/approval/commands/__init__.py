"""Classifies command lines before they run: known to only read, known to be dangerous, or neither.

Read ``classification`` first; ``script`` splits a shell script into commands.
"""
