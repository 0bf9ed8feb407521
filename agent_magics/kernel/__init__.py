"""The magics ``%%agent`` and ``%agent`` in a Jupyter kernel: the only folder that knows IPython.

Read ``magics`` first, then ``notebook`` and ``cell/run``.
"""
