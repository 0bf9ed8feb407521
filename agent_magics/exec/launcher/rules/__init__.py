"""Kernel mechanisms that confine a command: Landlock, seccomp, namespaces, dropped privileges.

Read ``landlock`` first.
"""
