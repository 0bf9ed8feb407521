"""A block as the MIME bundle that a cell publishes and a notebook keeps."""

from collections.abc import Mapping

from agent_magics.protocol.items import Json
from agent_magics.render.text import to_markdown, to_plain
from agent_magics.render.view import VERSION, Block

ITEM_MIME = "application/vnd.agent-magics.item+json"

# Of rich outputs only what cannot act is published: no HTML, no JavaScript, no SVG.
_HARMLESS = ("image/png", "image/jpeg", "image/gif", "image/webp", "text/plain")


def to_bundle(block: Block) -> dict[str, Json]:
    """Return what is published for `block`."""
    if block.data is not None:
        return harmless(block.data)
    return item_bundle(block.item)


def item_bundle(item: dict[str, Json]) -> dict[str, Json]:
    """Return the bundle of one item: for the extension, for readers, for consoles."""
    return {ITEM_MIME: item, "text/markdown": to_markdown(item), "text/plain": to_plain(item)}


def blocks_item(items: list[dict[str, Json]]) -> dict[str, Json]:
    """Return several finished items as one."""
    return {"version": VERSION, "kind": "block", "items": list(items)}


def harmless(data: Mapping[str, Json]) -> dict[str, Json]:
    """Return the parts of a rich output that cannot act in the page."""
    return {mime: data[mime] for mime in _HARMLESS if mime in data}
