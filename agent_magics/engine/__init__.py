"""Runs conversations: requests to the model, its tool calls, their outputs; ops in, events out.

``turn`` is the loop: read it first, then ``model_request`` and ``session``.
"""
