"""Finds what git reads for a repository, without running it.

Read ``repositories`` first.
"""
