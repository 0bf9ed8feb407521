"""JSON schemas that others wrote: brought into the subset that is sent, and made into functions.

Read ``sanitizer`` first.
"""
