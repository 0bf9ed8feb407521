"""Prunes old tool outputs from the sent conversation: the first and cheapest way to shorten it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_magics.engine.context.tokens import count_item
from agent_magics.protocol.items import (
    MODEL_ITEMS,
    InputText,
    Item,
    ToolCallOutput,
    parts_of,
    text_of,
)
from agent_magics.text.brief import number_of

# Tokens; what is shorter is not worth its line, and a line that stands for an output never is.
SHORTEST = 100

# How an output names the whole of its text, or an object that the model may want to use later. Any
# file may hold such a line, so it is shown beside the name that is known to be right.
_NAMED = re.compile(
    r"\[?@r\d+.{1,100}; (?:read_file and grep_files take it as a path"
    r"|it stands for this object in arguments).{0,60}"
)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Items with old outputs replaced by lines; `count` is the number of replaced ones."""

    items: list[Item]
    count: int


def prune(
    items: Sequence[Item], kept: int, keep: Callable[[str], str], *, unread: bool = False
) -> Pruned:
    """Replace old outputs by one line each; outputs that the model has not read yet stay.

    Args:
        items: the conversation as it is sent.
        kept: tokens of the newest outputs that stay whole.
        keep: stores a text and returns the handle by which it can be read again.
        unread: whether unread outputs beyond `kept` are replaced, too, as a last resort.
    """
    result = list(items)
    old = _old_outputs(items, len(items) if unread else first_unread(items), kept)
    for place, item in old:
        result[place] = replace(item, output=_line_for(item, keep))
    return Pruned(result, len(old))


def _old_outputs(items: Sequence[Item], end: int, kept: int) -> list[tuple[int, ToolCallOutput]]:
    """Return the outputs before `end` to replace, oldest first, with their indexes."""
    old = []
    for place in reversed(range(end)):
        item = items[place]
        if isinstance(item, ToolCallOutput):
            size = count_item(item)
            kept -= size
            if kept < 0 and size >= SHORTEST:
                old.append((place, item))
    return old[::-1]


def first_unread(items: Sequence[Item]) -> int:
    """Return the index of the first item after the model's last one."""
    place = len(items)
    while place and not isinstance(items[place - 1], MODEL_ITEMS):
        place -= 1
    return place


def _line_for(item: ToolCallOutput, keep: Callable[[str], str]) -> str:
    parts = parts_of(item.output)
    texts = [part.text for part in parts if isinstance(part, InputText)]
    images = len(parts) - len(texts)
    shown = number_of(images, "image") if images else ""
    amount = f"{sum(map(len, texts)):,} characters of output" if texts else ""
    size = " and ".join(filter(None, (amount, shown)))
    if not texts:
        return f"[{size} left out here; make the call again to see more.]"
    text = text_of(item.output)
    line = f"[{size} left out here; the whole is {keep(text)}.]"
    return "\n".join([line, *_NAMED.findall(text)[-1:]])
