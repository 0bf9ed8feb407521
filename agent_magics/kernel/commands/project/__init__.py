"""The `%agent` commands about the files for agents: skills, prompts, notes, trust in them.

Read ``skills`` first.
"""
