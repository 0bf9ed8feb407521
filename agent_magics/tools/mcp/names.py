"""Names the tools of MCP servers: ``mcp__SERVER__TOOL``, valid for every provider.

Where two names would become equal, both get a hash of the original ones, so that neither can stand
in for the other; and no name equals that of a built-in or registered tool.
"""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from agent_magics.protocol.errors import FatalError

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


WORD = "mcp"  # all tools of all servers
_SPECIAL = re.compile(r"[*?\[]")


class Selection:
    """A selection of MCP tools by name or pattern.

    Args:
        names: names of tools, patterns of such names, and `WORD`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._patterns = tuple(names)
        self.exact = frozenset(name for name in names if name != WORD and not _SPECIAL.search(name))
        self._rest = tuple(name for name in names if name not in self.exact)

    def __contains__(self, name: str) -> bool:
        return name in self.exact or any(
            each == WORD or fnmatchcase(name, each) for each in self._rest
        )

    def names_server(self, server: str) -> bool:
        """Return whether one of the tools may belong to this server."""
        return any(_may_name(each, server) for each in self._patterns)

    def check(self, servers: Sequence[str]) -> None:
        """Check that every name belongs to a server.

        Raises:
            FatalError: one does not; the sentence lists the servers.
        """
        for each in self._patterns:
            if each != WORD and not any(_may_name(each, server) for server in servers):
                raise FatalError(_no_server(each, servers))


def _may_name(pattern: str, server: str) -> bool:
    if pattern == WORD:
        return True
    head = _SPECIAL.split(pattern, maxsplit=1)[0]
    if head == pattern:
        return may_belong_to(pattern, server)
    start = start_of(server)
    return head.startswith(start) or start.startswith(head[: len(start)])


def _no_server(name: str, servers: Sequence[str]) -> str:
    if not servers:
        return (
            f"There is no tool named {name!r}: there are no MCP servers. "
            "%agent mcp add NAME -- COMMAND adds one."
        )
    server_part = name.removeprefix(PREFIX).partition("__")[0]
    near = difflib.get_close_matches(server_part, servers, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return (
        f"There is no tool named {name!r}: no MCP server begins its tools' names so.{hint} "
        f"The servers are: {', '.join(servers)}."
    )


def no_such_tool(name: str, server: str, tools: Iterable[str]) -> str:
    """Return the error sentence for a tool that a ready server does not have, with near names."""
    start = start_of(server)  # not compared: all of them have it in common
    plain = {each.removeprefix(start): each for each in tools}
    near = difflib.get_close_matches(name.removeprefix(start), plain, n=3, cutoff=0.6)
    what = f"near: {' or '.join(plain[each] for each in near)}" if near else f"it has {len(plain)}"
    return f"The MCP server {server} has no tool named {name!r}; {what}."
