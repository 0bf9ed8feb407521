r"""Splits a prompt at its ``{{expressions}}``; ``\{{`` stands for two braces."""

import re

_MARKER = re.compile(r"\\(\{\{)|\{\{(.+?)\}\}", re.DOTALL)


def split_at_braces(text: str) -> list[str]:
    """Return the pieces of a text: in odd places what stands in braces, between them the rest."""
    pieces, rest, end = list[str](), list[str](), 0
    # Behind the last braces nothing ends: looking on from each "{{" there would take long.
    for found in _MARKER.finditer(text, 0, text.rfind("}}") + 2):
        rest += text[end : found.start()], found[1] or ""
        end = found.end()
        if found[2]:
            pieces += "".join(rest), found[2]
            rest.clear()
    return [*pieces, "".join(rest) + text[end:].replace(r"\{{", "{{")]
