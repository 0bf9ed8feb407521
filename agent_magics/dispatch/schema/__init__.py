"""Generates the JSON schema of a function's parameters for the model.

Read ``signature`` first, then ``generation``.
"""
