"""The model's JSON as Python arguments, checked; all that does not fit is reported at once.

Read ``decoding`` first.
"""
