"""Which of the registered tools a request carries.

Read ``offer`` first; ``ranking`` (BM25) finds the others.
"""
