"""Selects the pictures of tools that a saved notebook should hold."""

import re
from collections.abc import Mapping

from agent_magics.protocol.items import Content, InputText, Json

# Characters of base64 of one picture, and of all that tools returned in one turn.
MOST_OF_ONE = 1_000_000
MOST_OF_TURN = 5_000_000

# What cannot act in the page, and nothing that it would have to fetch.
_SHOWN = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/]+={0,2})")


class TurnPictures:
    """Extracts the images from tool outputs, up to a size limit per image and per turn."""

    def __init__(self) -> None:
        self._left = MOST_OF_TURN

    def read(self, output: Content) -> tuple[str, list[Mapping[str, Json]]]:
        """Split a tool's output into its text and its images as rich outputs.

        Returns:
            The text, which names each image that was left out and why, and the MIME bundles of the
            rest.
        """
        if isinstance(output, str):
            return output, []
        texts: list[str] = []
        pictures: list[Mapping[str, Json]] = []
        for part in output:
            if isinstance(part, InputText):
                texts.append(part.text)
            elif isinstance(found := self._read_one(part.image_url), str):
                texts.append(found)
            else:
                pictures.append(found)
        return "\n".join(texts), pictures

    def _read_one(self, address: str) -> Mapping[str, Json] | str:
        if not address.startswith("data:"):
            return "[image: not shown, it is only an address]"
        size = len(address)
        if size > MOST_OF_ONE:
            return f"[image: left out, {size / 1e6:.1f} MB are too many for a notebook]"
        if size > self._left:
            return "[image: left out, the pictures of this turn are too many for a notebook]"
        if (found := _SHOWN.fullmatch(address)) is None:
            return "[image: not shown, it is no PNG, JPEG, GIF or WebP]"
        self._left -= size
        return {found[1]: found[2], "text/plain": "[image]"}
