"""Which of a server's tools can be called: those that are wanted, and those that can be offered."""

from collections.abc import Iterable, Mapping

import mcp_types as types

from agent_magics.backends.mcp.logs import LogRing
from agent_magics.backends.mcp.results import tool_of
from agent_magics.backends.mcp.schemas import MOST_OF_ALL, MOST_TOOLS, why_left_out
from agent_magics.protocol.mcp import McpServerConfig, McpTool

_LONGEST_SHOWN = 100  # characters of a name


def chosen_tools(
    config: McpServerConfig,
    found: Iterable[types.Tool],
    malformed: Mapping[str, str],
    log: LogRing,
) -> tuple[dict[str, McpTool], dict[str, str]]:
    """Return the tools by name, and why others are left out, also by name.

    Tools that the configuration does not want are in neither.

    Args:
        config: what it wants.
        found: what was listed.
        malformed: what was listed, too, but not as the protocol wants it: name -> why.
        log: of the server; reasons stand there as well.
    """
    kept: dict[str, McpTool] = {}
    left_out: dict[str, str] = {}
    for name, why in malformed.items():
        if _is_wanted(config, name):
            _leave_out(name, why, left_out, log)
    room = MOST_OF_ALL
    for tool in found:
        if not _is_wanted(config, tool.name):
            continue
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


def _is_wanted(config: McpServerConfig, name: str) -> bool:
    enabled = config.enabled_tools
    return (enabled is None or name in enabled) and name not in config.disabled_tools
