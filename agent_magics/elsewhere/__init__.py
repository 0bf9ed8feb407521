"""Sub-agents that work in other processes: workers of a Dask cluster, or of an executor.

Read ``session`` first: it is a sub-agent's session as its parent's pool uses it, in the kernel.
``description`` is what is sent to the worker, and ``worker`` what runs there.
"""
