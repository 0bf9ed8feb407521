"""Converts tool results for the model: text within a budget, images, stored results.

Read ``output`` first, then ``stored`` (``@r1``).
"""
