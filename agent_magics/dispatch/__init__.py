"""Takes a model's tool call to the tool and back: validation, approval, order, execution, results.

Read ``tool`` first (``@tool``), then ``router`` and ``pipeline``: the way of one call.
"""
