"""Reads text files: their encoding, their lines, ranges of them.

Read ``windows`` first, then ``lines``.
"""
