"""Reads rows from tables, lists and files, and returns answers as a table of the same kind.

Read ``sources`` first: what rows can be.
"""
