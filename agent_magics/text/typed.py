"""Writes a word as a person types it on a line, from which `kernel.typed_words` reads it back."""

import re

# An expression in a prompt; bounded, since many braces without an end would take long.
EXPRESSION = r"\{\{.{1,1000}?\}\}"
# Quotes begin a word or a value, which may have a name of its own (`--env=KEY="a b"`).
OPENED = re.compile(r"""(?:[\w-]+=){0,2}["']""")
_BARE = re.compile(rf"(?!{OPENED.pattern})(?>{EXPRESSION}|\S)+", re.DOTALL)
_EXPRESSION = re.compile(EXPRESSION, re.DOTALL)


def as_typed(word: str) -> str:
    """Return a word as it stands on a line of ``%agent``: in quotes where it needs some.

    A word with both quotation marks before white space cannot be typed.
    """
    # IPython takes a "?" or a backslash at the end of a line for its own.
    if _BARE.fullmatch(word) and not word.endswith(("?", "\\")):
        return word
    sign = "'" if re.search(r'"\s', _EXPRESSION.sub("x", word)) else '"'
    return f"{sign}{word}{sign}"
