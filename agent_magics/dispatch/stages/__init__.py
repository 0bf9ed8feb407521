"""Does the work of stages of a call: judges, asks and runs, enforces limits, stores the output.

``orchestrator`` has most of them: read it first. ``pipeline``, above, has their list.
"""
