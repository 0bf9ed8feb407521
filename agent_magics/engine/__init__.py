"""Runs conversations: requests to the model, its tool calls, their outputs; ops in, events out.

``turns`` has the loop: read it first, then ``model_request`` and ``session``.
"""
