"""The part of a conversation that is sent to the model: its items, their size, their compaction.

Read ``history`` first, then ``compaction``, which decides when and how it becomes shorter.
"""
