"""Validates regular expressions, and refuses those that ripgrep and Python interpret differently.

Where ripgrep accepts a pattern, its interpretation holds. Where Python has to do the search, a
pattern that it would silently interpret in another way is refused: the same call must not find
other lines on another machine.
"""

import re
from collections.abc import Iterator

from agent_magics.protocol.errors import RespondToModel

_MOST_BYTES = 50_000
_LINE_BREAK = re.compile(r"(?<!\\)(?:\\\\)*\\n|\n")
_RETURN = re.compile(r"(?<!\\)(?:\\\\)*\\r|\r")
# One that nothing closes reaches to the end: searching again from each "[" would take long.
_CLASS = re.compile(r"(?<!\\)\[\^?+\]?+(?:\\.|[^\]\\])*+(?:\]|\Z)")
# One escape, one whole bracket expression, one doubled quantifier, or one other character.
_TOKEN = re.compile(r"\\.|\[\^?+\]?+(?:\[:\^?\w*:\]|\\.|[^\]\\])*+(?:\]|\Z)|[*+?}]\+|.", re.DOTALL)
# Letters and signs that stand for themselves, escapes, edges, each with one quantifier at most.
_UNIT = r"(?:(?:[\w \-/:;,'\"`=<>#@!%&~]|\\[.()\[\]{}*+?|^$\\wWsSdD]|\.)[*+?]?|\\[bB]|[\^$])"
_PLAIN = re.compile(rf"{_UNIT}+(?:\|{_UNIT}+)*")
_MOST_PLAIN = 100  # characters; a hundred of \W are far from the size that ripgrep refuses


def refuse_unsearchable(pattern: str) -> None:
    """Refuse a pattern that neither engine can search for.

    Raises:
        RespondToModel: the pattern is empty, too long, or spans several lines.
    """
    if not pattern:
        raise RespondToModel("The pattern is empty; give a regular expression to look for.")
    if "\0" in pattern or len(pattern.encode("utf-8", "replace")) > _MOST_BYTES:
        raise RespondToModel(
            "The pattern is too long or holds a NUL character; give a plainer one."
        )
    if any(0xD800 <= ord(c) <= 0xDFFF for c in pattern):
        raise RespondToModel("The pattern holds half a character (a surrogate); write it whole.")
    if _LINE_BREAK.search(_CLASS.sub("", pattern)):
        raise RespondToModel(
            f"{pattern!r} spans lines, but one line is searched at a time; "
            "look for one of its lines and use context."
        )


def names_returns(pattern: str) -> bool:
    """Tell whether `pattern` looks for carriage returns, which else belong to the line break."""
    return _RETURN.search(pattern) is not None


def is_plain(pattern: str) -> bool:
    """Tell whether every version of ripgrep accepts `pattern`, as it does nearly all that is
    searched for; of others, and of what fits an empty text, only ripgrep itself can tell.
    """
    is_plain = len(pattern) <= _MOST_PLAIN and _PLAIN.fullmatch(pattern) is not None
    return is_plain and not re.search(pattern, "")


def refuse_ambiguous(pattern: str) -> None:
    """Refuse a pattern that Python would silently interpret in another way than ripgrep.

    Raises:
        RespondToModel: the message names the piece of the pattern, and what to write instead.
    """
    for piece, instead in _ambiguities(pattern):
        raise RespondToModel(
            f"{piece!r} in {pattern!r} means other things to ripgrep and to Python, which does "
            f"this search; {instead}."
        )


def _ambiguities(pattern: str) -> Iterator[tuple[str, str]]:
    for token in _TOKEN.findall(pattern):
        if token in (r"\<", r"\>"):
            yield token, f"write \\b for the edge of a word, or {token[1]} for the character"
        elif len(token) == 2 and token[0] in "*+?}" and token[1] == "+":
            yield token, "leave out the second quantifier, or put the first into (?:…)"
        elif token[0] == "[" and len(token) > 1:
            yield from _in_class(token[1:-1].removeprefix("^"))


def _in_class(inside: str) -> Iterator[tuple[str, str]]:
    plain = re.sub(r"\\.", "  ", inside, flags=re.DOTALL)
    if found := re.search(r"\[:\^?\w*:\]", plain):
        yield found[0], "write its characters out, such as a-zA-Z"
    elif "[" in plain:
        yield "[", r"write \[ for the character"
    elif found := re.search(r"&&|(?<=.)--(?=.)|~~", plain, re.DOTALL):
        yield found[0], f"write {found[0][0]} once, with a backslash, for the character"
