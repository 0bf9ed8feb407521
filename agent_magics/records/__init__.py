"""Finds, reads, lists, forks and deletes the records of conversations on disk.

Read ``reading`` first: it defines the content of a record and how much of a damaged one is used.
"""
