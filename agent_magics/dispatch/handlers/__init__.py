"""The handlers of tools: Python functions, tools defined by data, handlers of a program.

Read ``function`` first: nearly every tool goes through it.
"""
