"""Asks rows through what an agent has: its model's client, or small runs of its own.

Read ``models`` first; ``agents`` is for rows with ``tools=``. Both are an ``asking.Asker``, as are
the client of ``remote``, which asks a server directly, and the coordinator of ``engines``.
"""
