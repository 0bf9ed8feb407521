"""Reads files and folders safely: checks paths, follows no symbolic links, applies gitignore rules.

Read ``paths`` first: it alone decides what may be read or written.
"""
