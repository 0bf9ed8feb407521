"""Live code: the model's Python in the person's own namespace.

Read ``namespace`` first: it runs the code. The others guard it, capture its output and undo it.
"""
