"""Detects a model that repeats itself, and asks the person before it goes on.

Read ``detector`` first; ``approval`` asks the question.
"""
