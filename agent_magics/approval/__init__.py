"""Approval: which calls run, which need the person's approval, and which are refused.

Read ``actions`` first, then ``requirement``: the table of policy and action.
"""
