"""Decides about calls with the person: the decision, the question, edits of the call.

Read ``decision`` first: it puts rules, policy and the person's answer together.
"""
