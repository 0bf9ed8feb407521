r"""Splits what a person types on a line into words, and leaves what stands in them as it is.

A shell would take out the backslashes of ``C:\data`` and ``\frac``, and quotes in expressions.
"""

import re
from collections.abc import Sequence

from agent_magics.protocol.errors import FatalError
from agent_magics.text.typed import EXPRESSION, OPENED

# Quotes begin and end a word or a value, which may have a name of its own (`--env=KEY="a b"`).
_WORD = re.compile(
    rf"""(?P<name>(?:[\w-]+=){{0,2}})(?P<sign>["'])(?P<quoted>(?>{EXPRESSION}|.)*?)(?P=sign)(?=\s|\Z)"""
    rf"|(?P<plain>(?>{EXPRESSION}|\S)++)",
    re.DOTALL,
)


def split_words(line: str) -> list[str]:
    r"""Split a line at white space outside of quotes and of ``{{expressions}}``.

    Quotes around a word, or behind its ``name=``, are taken out: ``f="the EU"`` is ``f=the EU``.
    Other quotes, and all backslashes, are text.

    Raises:
        FatalError: a quotation mark has no partner, or more follows it.
    """
    return [_read(word) for word in _WORD.finditer(line)]


def unquoted(words: Sequence[str]) -> str:
    """Return the words of a text without the quotes around all of it.

    IPython takes a line that ends in "?" for a question of its own, unless that is in quotes.
    """
    text = " ".join(words)
    sign, inner = text[:1], text[1:-1]
    is_quoted = len(text) > 1 and sign == text[-1] and sign in "'\"" and sign not in inner
    return inner if is_quoted else text


def _read(word: re.Match[str]) -> str:
    if word["sign"]:
        return word["name"] + word["quoted"]
    if OPENED.match(word["plain"]):
        raise FatalError("A quotation mark is missing in this line, or no space follows one.")
    return word["plain"]
