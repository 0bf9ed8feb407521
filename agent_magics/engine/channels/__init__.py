"""Carries events out and answers in: redacted, recorded, shown; requests that wait for an answer.

Read ``outbox`` first: every event passes it.
"""
