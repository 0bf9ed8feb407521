"""The tools for the structure of code: symbols, references, calls, diagnostics, edits by symbol.

Read ``listing`` (`symbols`) first; ``sources`` says which files they read, ``names`` how a symbol
is named. The folder is not called `symbols`, because it would replace the tool of that name.
"""
