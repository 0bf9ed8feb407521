"""Validates settings and puts their sources in order.

The table itself stands in ``protocol.config``. Read ``sources`` first, then ``validation``.
"""
