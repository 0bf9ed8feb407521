"""Reads a file of git's settings as git reads it, without running it.

Law: no text hides a setting from this reader that git finds in it.
"""

import re
from collections.abc import Iterator

# White space or a comment, the head of a section, or a name with its value.
_PART = re.compile(
    r"[ \t\r\n]+|[#;][^\n]*+"
    r"|\[([\w.-]++)[ \t]*+(?:\"((?:[^\"\\\n]|\\.)*+)\")?\]"
    r"|([A-Za-z][\w-]*+)[ \t]*+(?:=((?>(?:[^\n\"\\#;]++|\\.|\"(?:[^\"\\\n]|\\.)*+\")*)))?",
    re.ASCII | re.DOTALL,
)
_SIGN = re.compile(r"\\?.", re.DOTALL)
_ESCAPED = {"\\\n": "", "\\n": "\n", "\\t": "\t", "\\b": "\b"}


def settings_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the full name and the value of each setting, up to the first line that is none.

    Args:
        text: the file; of a name only what stands in quotes may have capital letters.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n") + "\n"
    section, at = "", 0
    while part := _PART.match(text, at):
        at = part.end()
        head, quoted, name, written = part.groups()
        if head is not None:
            below = "" if quoted is None else "." + re.sub(r"(?s)\\(.)", r"\1", quoted)
            section = head.lower() + below
        elif name is not None:
            yield f"{section}.{name.lower()}", _value_of(written or "")


def _value_of(written: str) -> str:
    """Return a value without its quotes, escapes, and the white space around it."""
    value, length, is_quoted = "", 0, False
    for sign in _SIGN.findall(written):
        if sign in " \t\r" and not is_quoted:
            value += sign if value else ""
            continue
        if sign == '"':
            is_quoted = not is_quoted
        else:
            value += _ESCAPED.get(sign, sign[-1])
        length = len(value)
    return value[:length].partition("\0")[0]
