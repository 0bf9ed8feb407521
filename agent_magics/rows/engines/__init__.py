"""Asks rows' questions from other processes: workers of a Dask cluster, or of an executor.

Read ``coordinator`` first: it gives questions to workers and takes their answers. ``worker`` is
what runs there, ``link`` how both speak, ``dask`` and ``executors`` how workers are started.
"""
