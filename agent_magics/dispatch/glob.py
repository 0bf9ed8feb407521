"""Glob patterns of rules: ``*`` and ``?`` stay within one folder, ``**`` goes through all below."""

import re
from functools import cache

_TOKEN = re.compile(
    r"/\*\*\Z|\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|(?:(?!/\*\*\Z)[^*?\[])+|\[", re.DOTALL
)
_LONGEST, _MOST_DEEP = 1_000, 4


def matches_glob(pattern: str, text: str) -> bool:
    """Tell whether the whole of `text` fits `pattern`.

    Args:
        pattern: ``src/**`` is the folder src with all below, ``**/x`` every x at any depth,
            ``[ab]`` one of two characters, ``[!ab]`` one other.
        text: a path with ``/`` between its parts, or a name.
    """
    return _compiled(pattern).match(text) is not None


def is_glob(pattern: str) -> bool:
    """Tell whether `pattern` can be used: matching it must not take long, whatever the text is."""
    if len(pattern) > _LONGEST or pattern.count("**") > _MOST_DEEP:
        return False
    try:
        _compiled(pattern)
    except re.error:  # a range that runs backwards, say
        return False
    return True


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(map(_translate, _TOKEN.findall(pattern))) + r"\Z", re.DOTALL)


def _escaped(found: "re.Match[str]") -> str:
    return "".join(f"\\{character}" for character in found.group())


def _translate(token: str) -> str:
    fixed = {"/**": r"(?:/.*)?", "**/": r"(?:.*/)?", "**": r".*", "*": r"[^/]*", "?": r"[^/]"}
    if token in fixed:
        return fixed[token]
    if token.startswith("[") and token.endswith("]") and len(token) > 2:
        inside = token[1:-1]
        negated, inside = inside.startswith("!"), inside.removeprefix("!")
        # Also what `re` means to read as set operations one day, and warns of: -- && ~~ ||.
        characters = re.sub(r"([\\\]\[^&~|]|--)", _escaped, inside)
        return f"[{'^/' if negated else ''}{characters}]" if inside else re.escape(token)
    return re.escape(token)
