"""Runs the turns of a conversation, each a task on the engine's loop.

``loop`` asks the model and runs its calls: read it first. ``runner`` has all that is around it.
"""
