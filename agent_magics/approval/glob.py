"""Matches the glob patterns of rules: ``*`` and ``?`` stay within one folder, ``**`` spans
folders.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

_TOKEN = re.compile(
    r"/\*\*\Z|\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|(?:(?!/\*\*\Z)[^*?\[])+|\[", re.DOTALL
)
_LONGEST, _MOST_DEEP = 1_000, 4
_MOST_BACKTRACKED = 2  # stars of a pattern that `re` matches, which is quicker with few


def matches_glob(pattern: str, text: str) -> bool:
    """Tell whether the whole of `text` matches `pattern`.

    Args:
        pattern: ``src/**`` is the folder src with all below, ``**/x`` every x at any depth,
            ``[ab]`` one of two characters, ``[!ab]`` one other.
        text: a path with ``/`` between its components, or a name.
    """
    return bool(_matcher(pattern)(text))


def is_glob(pattern: str) -> bool:
    """Tell whether `pattern` is valid, and matching it is fast for any text."""
    if len(pattern) > _LONGEST or pattern.count("**") > _MOST_DEEP:
        return False
    try:
        _compiled(pattern)
    except re.error:  # for example a reversed range
        return False
    return True


@cache
def _matcher(pattern: str) -> Callable[[str], object]:
    tokens = _tokens(pattern)
    is_slow = sum("*" in token for token in tokens) > _MOST_BACKTRACKED
    return partial(_fits, tokens) if is_slow else _compiled(pattern).match


@cache
def _tokens(pattern: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(pattern))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(map(_translate, _tokens(pattern))) + r"\Z", re.DOTALL)


def _fits(tokens: Sequence[str], text: str) -> bool:
    """Match the tokens in turn, with all places in the text at once, as an NFA does.

    Its time grows with the tokens times the text; that of `re` grows exponentially with the stars.
    """
    reached = {0}
    for token in tokens:
        if not reached:
            return False
        reached = _after(token, text, reached)
    return len(text) in reached


def _after(token: str, text: str, reached: set[int]) -> set[int]:
    """Return the places where a token can end that begins at one of those reached."""
    first, end = min(reached), len(text) + 1
    if token == "**":
        return set(range(first, end))
    if token == "*":
        return set(_within_folder(text, reached))
    if token == "**/":
        return reached | {at + 1 for at in range(first, len(text)) if text[at] == "/"}
    if token == "/**":
        below = [at + 1 for at in reached if text.startswith("/", at)]
        return reached | set(range(min(below), end)) if below else reached
    match = _one(token).match
    return {found.end() for at in reached if (found := match(text, at))}


def _within_folder(text: str, reached: set[int]) -> Iterator[int]:
    is_inside = False
    for at in range(min(reached), len(text) + 1):
        is_inside = at in reached or (is_inside and text[at - 1] != "/")
        if is_inside:
            yield at


@cache
def _one(token: str) -> re.Pattern[str]:
    return re.compile(_translate(token), re.DOTALL)


def _escaped(found: "re.Match[str]") -> str:
    return "".join(f"\\{character}" for character in found.group())


def _translate(token: str) -> str:
    fixed = {"/**": r"(?:/.*)?", "**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    if token in fixed:
        return fixed[token]
    if token.startswith("[") and token.endswith("]") and len(token) > 2:
        inside = token[1:-1]
        negated, inside = inside.startswith("!"), inside.removeprefix("!")
        # Also future set operations of `re`, about which it warns: -- && ~~ ||.
        characters = re.sub(r"([\\\]\[^&~|]|--)", _escaped, inside)
        return f"[{'^/' if negated else ''}{characters}]" if inside else re.escape(token)
    return re.escape(token)
