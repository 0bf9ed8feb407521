"""Formats a block as the MIME bundle that a cell publishes and a notebook keeps."""

from collections.abc import Mapping, Sequence

from agent_magics.protocol.items import Json
from agent_magics.render.blocks.display import VERSION, DisplayBlock
from agent_magics.render.blocks.groups import group_calls
from agent_magics.render.text import to_markdown, to_plain

ITEM_MIME = "application/vnd.agent-magics.item+json"

# Of rich outputs only what cannot act is published: no HTML, no JavaScript, no SVG.
_HARMLESS = ("image/png", "image/jpeg", "image/gif", "image/webp", "text/plain")


def to_bundle(block: DisplayBlock) -> dict[str, Json]:
    """Return the MIME bundle (type to data) that is published for a block."""
    if block.data is None:
        return item_bundle(block.item)
    said: dict[str, Json] = {ITEM_MIME: block.item} if block.item else {}
    return {**said, **harmless(block.data)}


def item_bundle(item: dict[str, Json]) -> dict[str, Json]:
    """Return an item's MIME bundle: our own type for the extension, Markdown, and plain text."""
    return {ITEM_MIME: item, "text/markdown": to_markdown(item), "text/plain": to_plain(item)}


def blocks_item(items: Sequence[dict[str, Json]]) -> dict[str, Json]:
    """Wrap several items into one of kind "block", or of "group" where only finished calls are."""
    grouped = group_calls(items)
    if len(grouped) == 1 and grouped[0]["kind"] == "group":
        return grouped[0]
    return {"version": VERSION, "kind": "block", "items": [*grouped]}


def harmless(data: Mapping[str, Json]) -> dict[str, Json]:
    """Return the parts of a rich output whose MIME types cannot run code in the page."""
    return {mime: data[mime] for mime in _HARMLESS if mime in data}


def picture_metadata(bundle: Mapping[str, Json]) -> dict[str, Json]:
    """Return an output's metadata with the image's alternative text, where nbconvert reads it."""
    item = bundle.get(ITEM_MIME)
    if not isinstance(item, dict) or item.get("kind") != "picture":
        return {}
    return {mime: {"alt": item["alt"]} for mime in bundle if mime.startswith("image/")}
