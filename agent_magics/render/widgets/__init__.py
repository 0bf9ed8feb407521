"""Widgets shown on a page while something is live: questions, forms, command output.

Read ``live`` first; ``static/`` has their JavaScript and CSS.
"""
