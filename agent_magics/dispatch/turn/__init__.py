"""What a tool's context refers to: live code, file changes, servers, sub-agents, a call's status.

Read ``status`` first; most others are interfaces to what stands above ``dispatch``.
"""
