"""The launcher: one small process beside the kernel that starts, confines and ends commands.

Everything here runs under ``python -I -S``: it imports the standard library and this room, no more.
"""
