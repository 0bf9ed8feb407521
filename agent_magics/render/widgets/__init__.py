"""Widgets shown on a page while something is live: questions, forms, command output.

Read ``page`` first, their bases; ``static/`` has their JavaScript and CSS.
"""
