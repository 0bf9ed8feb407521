"""Recordings of providers' answers: made, redacted, replayed, or written by hand.

Read ``format`` first, then ``replay``.
"""
