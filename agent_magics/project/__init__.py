"""Reads a project's files for agents: text for the model, which grants no rights.

Read ``instructions`` first: AGENTS.md, from the repository's root down to the workspace. ``skills``
finds folders with a SKILL.md and ``prompts`` Markdown with fields, whose files ``texts`` reads;
``memory`` keeps the notes that agents write.
"""
