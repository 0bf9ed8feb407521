"""The tools for commands: ``shell`` and its forms, ``exec_command`` and its sessions.

Read ``shell`` first, then ``run``: the one way in which a command of a call is run.
"""
