"""Searches files for a regular expression, with ripgrep if it is installed, else with Python.

Read ``matches`` first.
"""
