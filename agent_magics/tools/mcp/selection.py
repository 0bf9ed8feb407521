"""Selects tools of MCP servers by name, pattern or server.

``mcp__time__get_current_time``, ``mcp__time__*``, ``mcp``: the names as the model knows them.
"""

import difflib
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from agent_magics.protocol.errors import FatalError
from agent_magics.tools.mcp.names import PREFIX, may_belong_to, start_of

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
