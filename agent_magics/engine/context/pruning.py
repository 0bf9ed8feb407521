"""Old tool outputs taken out of what is sent: the first and cheapest way to make room."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agent_magics.engine.tokens import count_item
from agent_magics.protocol.items import (
    MODEL_ITEMS,
    InputText,
    Item,
    ToolCallOutput,
    text_of,
)

# Tokens; what is shorter is not worth its line, and a line that stands for an output never is.
SHORTEST = 100

# How an output names the whole of its text (`tools.command_run`, `dispatch.references`), and an
# object that the model may want to use later.
_WHOLE = re.compile(
    r"(@r\d+)(?: \([\d,]+ lines?|: the whole text, [\d,]+ characters); read_file and grep_files"
)
_OBJECT = re.compile(r"^\[@r\d+: .{1,100}; it stands for this object in arguments.{0,60}\]$", re.M)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Items with lines in place of old outputs; `count` is how many were replaced."""

    items: list[Item]
    count: int


def prune(
    items: Sequence[Item], kept: int, keep: Callable[[str], str], *, unread: bool = False
) -> Pruned:
    """Replace old outputs by one line each; what the model has not read yet stays.

    Args:
        items: the conversation as it is sent.
        kept: tokens of the newest outputs that stay whole.
        keep: keeps a text and returns the handle by which it can be read again.
        unread: go by `kept` alone: there is no other way to make room.
    """
    result = list(items)
    old = _old_outputs(items, len(items) if unread else first_unread(items), kept)
    for place, item in old:
        result[place] = replace(item, output=_line_for(item, keep))
    return Pruned(result, len(old))


def _old_outputs(items: Sequence[Item], end: int, kept: int) -> list[tuple[int, ToolCallOutput]]:
    """Return the outputs before `end` that are to go, oldest first, and where they stand."""
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
    """Return where that begins which came after the model's last word."""
    place = len(items)
    while place and not isinstance(items[place - 1], MODEL_ITEMS):
        place -= 1
    return place


def _line_for(item: ToolCallOutput, keep: Callable[[str], str]) -> str:
    parts = (InputText(item.output),) if isinstance(item.output, str) else item.output
    texts = [part.text for part in parts if isinstance(part, InputText)]
    images = len(parts) - len(texts)
    shown = f"{images} image{'' if images == 1 else 's'}" if images else ""
    said = f"{sum(map(len, texts)):,} characters of output" if texts else ""
    size = " and ".join(filter(None, (said, shown)))
    if not texts:
        return f"[{size} left out here; make the call again to see more.]"
    text = text_of(item.output)
    whole = _WHOLE.findall(text)
    line = f"[{size} left out here; the whole is {whole[-1] if whole else keep(text)}.]"
    return "\n".join([line, *_OBJECT.findall(text)[-1:]])
