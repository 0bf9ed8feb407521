"""The launcher: a small process beside the kernel that starts, confines and ends commands.

This folder runs under ``python -I -S``: it imports only the standard library and itself.
Read ``zygote`` first, then ``supervisor`` and ``confine``.
"""
