"""Replaces a text that the model reads a second time by one line, while the first is still sent."""

from itertools import islice

from agent_magics.engine.context.history import History
from agent_magics.protocol.items import CallItem, Content, FunctionCall, ToolCallOutput

READING = frozenset(("read_file", "get_memory", "read_skill"))
"""Tools that return what something holds now."""

SAME = "Not changed since you last read it: the text of your earlier {name} call still holds."

# Characters; a shorter text is as good as the line.
_SHORTEST = 200
# Items; what was said before these is easily overlooked, so it is said again.
_NEAR = 100


def say_once(call: CallItem, content: Content, history: History) -> Content:
    """Return `content`, or one line where an output that is still sent has the same text.

    Args:
        call: the call that returned it.
        content: its output.
        history: the conversation.
    """
    if not (isinstance(call, FunctionCall) and call.name in READING and isinstance(content, str)):
        return content
    if len(content) < _SHORTEST:
        return content
    near = islice(reversed(history.sent), _NEAR)
    is_there = any(isinstance(each, ToolCallOutput) and each.output == content for each in near)
    return SAME.format(name=call.name) if is_there else content
