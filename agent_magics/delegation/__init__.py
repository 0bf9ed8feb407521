"""Sub-agents: conversations that an agent starts, with at most its rights and within its budget.

Read ``pool`` first: it starts them, keeps their places, and ends them.
"""
