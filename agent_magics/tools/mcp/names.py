"""Names the tools of MCP servers: ``mcp__SERVER__TOOL``, valid for every provider.

Where two names would become equal, both get a hash of the original ones, so that neither can stand
in for the other; and no name equals that of a built-in or registered tool.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Sequence

LONGEST_NAME = 64
PREFIX = "mcp__"
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")
_HASH = 8  # hexadecimal digits


def qualified_names(
    tools: Sequence[tuple[str, str]], taken: Collection[str] = ()
) -> dict[tuple[str, str], str]:
    """Return (server, tool) -> the name that the model calls.

    Args:
        tools: pairs of a server's name and its tool's name, in their own spelling.
        taken: names of other tools.
    """
    plain = {each: _plain(*each) for each in tools}
    often = Counter(plain.values())
    names = {
        each: _hashed(name, each)
        for each, name in plain.items()
        if often[name] > 1 or len(name) > LONGEST_NAME or name in taken
    }
    hashed = set(names.values())
    for each, name in plain.items():  # one that looks like another's hashed name gets a hash, too
        if each not in names:
            names[each] = _hashed(name, each) if name in hashed else name
    return names


def _plain(server: str, tool: str) -> str:
    return PREFIX + _REFUSED.sub("_", server) + "__" + _REFUSED.sub("_", tool)


def _hashed(name: str, tool: tuple[str, str]) -> str:
    # With the length, so that no two pairs are one text.
    text = f"{len(tool[0])} {tool[0]}{tool[1]}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH]
    return f"{name[: LONGEST_NAME - _HASH - 1]}_{digest}"


def start_of(server: str) -> str:
    """Return the common prefix of the names of a server's tools."""
    return PREFIX + _REFUSED.sub("_", server) + "__"


def may_belong_to(name: str, server: str) -> bool:
    """Return whether `name` may be a tool of `server`, whose tool list is not known yet."""
    return name.startswith(start_of(server)[: LONGEST_NAME - _HASH - 1])
