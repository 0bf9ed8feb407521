"""The tools for files: read, list, search, view, write, edit and patch.

Read ``reading`` (``read_file``) first; ``access`` says which files all of them may see.
"""
