"""The magics ``%%agent`` and ``%agent`` in a Jupyter kernel: the only folder that knows IPython.

Read ``magics`` first, then ``cells``, ``notebook`` and ``cell/run``.
"""
