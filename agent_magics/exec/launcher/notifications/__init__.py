"""Handles system calls that seccomp forwards to the supervisor: performs or refuses them for a
command.

Read ``notifier`` first.
"""
