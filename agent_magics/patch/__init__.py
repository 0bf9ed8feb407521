"""The patch engine: parses patches and single edits, matches them against files, applies all or
none.

Read ``plan`` first.
"""
