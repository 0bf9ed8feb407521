"""Reads what one ``%%agent`` cell asks: its prompt, its pictures, its options, its recording.

``reading`` makes a prompt and the configuration of a turn of them: read it first.
"""
