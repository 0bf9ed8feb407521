"""Reads what one ``%%agent`` cell asks: its prompt, its pictures, the type of its answer.

``prompt`` reads the text for the model: read it first.
"""
