"""Selects the tools of a server that can be called: wanted by the configuration, and
well-formed.
"""

from collections.abc import Iterable, Mapping

import mcp_types as types

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.client.results import tool_of
from agent_magics.mcp.client.schemas import MOST_OF_ALL, MOST_TOOLS, why_left_out
from agent_magics.protocol.mcp import McpServerConfig, McpTool

_LONGEST_SHOWN = 100  # characters of a name


def chosen_tools(
    config: McpServerConfig,
    found: Iterable[types.Tool],
    malformed: Mapping[str, str],
    log: LogRing,
) -> tuple[dict[str, McpTool], dict[str, str]]:
    """Return the tools by name, and the reasons why others are left out, by name.

    Args:
        config: the server's configuration.
        found: the listed tools that it wants.
        malformed: listed tools that do not follow the protocol: name -> reason.
        log: of the server; receives the reasons too.
    """
    kept: dict[str, McpTool] = {}
    left_out: dict[str, str] = {}
    for name, why in malformed.items():
        _leave_out(name, why, left_out, log)
    room = MOST_OF_ALL
    for tool in found:
        why, size = _why_not(tool, kept, room)
        if why:
            _leave_out(tool.name, why, left_out, log)
            continue
        room -= size
        kept[tool.name] = tool_of(config.name, tool)
    return kept, left_out


def _leave_out(name: str, why: str, left_out: dict[str, str], log: LogRing) -> None:
    name = name[:_LONGEST_SHOWN]
    left_out[name] = why
    log.note(f"the tool {name!r} is left out: {why}")


def _why_not(tool: types.Tool, kept: dict[str, McpTool], room: int) -> tuple[str, int]:
    if tool.name in kept:
        return "another one of the same name comes before it", 0
    if len(kept) >= MOST_TOOLS:
        return f"the server has more than {MOST_TOOLS} tools", 0
    parts = (tool.description or "", tool.input_schema, tool.output_schema)
    return why_left_out(tool.name, parts, room)


def is_wanted(config: McpServerConfig, name: str) -> bool:
    """Tell whether the configuration wants a tool of that name."""
    enabled = config.enabled_tools
    return (enabled is None or name in enabled) and name not in config.disabled_tools
