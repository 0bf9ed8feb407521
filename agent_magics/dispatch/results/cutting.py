"""Cuts text to a budget of characters."""

import re
from collections.abc import Mapping
from typing import Any

_MARK = " characters left out …"
_LINE = re.compile(rf"^… \d+{_MARK}$", re.MULTILINE)


def cut_text(text: str, budget: int) -> tuple[str, int]:
    """Return the head and the tail of `text` within `budget`, and the count of missing characters.

    Cuts fall on line ends where one is near. A marker between the two names the count; it comes on
    top of the budget.
    """
    if len(text) <= budget:
        return text, 0
    half = max(budget, 0) // 2
    head = text.rfind("\n", half // 2, half) + 1 or half
    tail = len(text) - (max(budget, 0) - half)
    line = text.find("\n", tail, tail + half // 2)
    if line >= 0:
        tail = line + 1
    start, end, omitted = text[:head], text[tail:], tail - head
    gap = "\n" if start and not start.endswith("\n") else ""
    return f"{start}{gap}{left_out(omitted)}\n{end}", omitted


def left_out(count: int) -> str:
    """Return the line that stands in the place of so many characters."""
    return f"… {count}{_MARK}"


def has_cut(text: str) -> bool:
    """Return whether a text has a marker of `cut_text`."""
    return _MARK in text and _LINE.search(text) is not None


def fit_text(text: str, budget: int) -> str:
    """Return `text` cut to `budget`, such that a request can carry it."""
    return cut_text(encodable(text), budget)[0]


def encodable_json(value: Any) -> Any:
    """Return a JSON value with all texts in it, names too, as `encodable` returns them."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {encodable(name): encodable_json(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [encodable_json(each) for each in value]
    return value


def encodable(text: str) -> str:
    """Return a text with lone surrogates written out, as in file names: no message carries them."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text
