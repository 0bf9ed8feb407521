"""Shows changed files: as Markdown, as text, and with old and new side by side.

Read ``changes`` first.
"""
