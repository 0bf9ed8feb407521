"""Turns engine events into display blocks: Markdown, plain text, MIME bundles, widgets.

Read ``view`` first: a pure fold from events to blocks.
"""
