"""Removes what only a model or a terminal would see in the texts of others."""

import re

# What a terminal obeys, what turns the order of letters round, and the invisible tag characters and
# variation selectors, by which a text says to a model what people do not see. One selector or
# joiner by itself belongs to an emoji or a script.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
    "|[\ufe00-\ufe0f]{2,}|[\u200c\u200d]{2,}"
)


def clean_text(text: str) -> str:
    """Return a text without invisible and control characters; lines and tabs stay."""
    return _INVISIBLE.sub("", text.replace("\r\n", "\n")).strip()
