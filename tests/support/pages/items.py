"""Reads saved items: blocks and groups hold others."""

from collections.abc import Iterable
from typing import Any


def unfolded(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items with those inside blocks and groups in their place."""
    found: list[dict[str, Any]] = []
    for item in items:
        inside = item["kind"] in ("block", "group")
        found += unfolded(item["items"]) if inside else [item]
    return found
