"""Notifies the model of MCP server changes: one line each, and each once."""

import json
from collections.abc import Collection, Mapping, Sequence

from agent_magics.protocol.errors import clause
from agent_magics.protocol.mcp import McpServerState, McpStatus
from agent_magics.text.brief import number_of
from agent_magics.text.invisible import clean_text

# The most characters of a server's instructions.
_LONGEST = 1_000
_READY, _STARTING = "ready", "starting"


def describe_changes(
    states: Sequence[McpServerState], counts: Mapping[str, int], reported: dict[str, str]
) -> list[str]:
    """Return one line for each change of a server that the model was not notified of yet.

    Args:
        states: the servers' present states.
        counts: server -> number of its tools that can be called.
        reported: server -> the state last reported in this conversation; updated in place.
    """
    lines: list[str] = []
    starting: list[str] = []
    for state in states:
        name, now = state.config.name, _kind_of(state)
        before = reported.get(name, "")
        if now == before or not (now or before):
            continue
        reported[name] = now
        if now == _STARTING:
            starting.append(name)
        elif now == _READY:
            lines += _ready(state, counts.get(name, 0), is_change=bool(before))
        else:
            why = clause(state.message) or "it was switched off"
            lines.append(f"The tools of the MCP server {name} are not there: {why}.")
    if starting:
        is_one = len(starting) == 1
        lines.append(
            f"{'This MCP server is' if is_one else 'These MCP servers are'} still starting: "
            f"{', '.join(starting)}. {'Its' if is_one else 'Their'} tools are offered as soon as "
            "they are known; mcp_call_tool waits for a server."
        )
    return lines


def describe_removed(configured: Collection[str], reported: dict[str, str]) -> list[str]:
    """Return a line for each reported server that is no longer configured, and drop it."""
    removed = [name for name in reported if name not in configured]
    reported_before = [name for name in removed if reported.pop(name)]
    return [f"The MCP server {name} is not configured any more." for name in reported_before]


def _kind_of(state: McpServerState) -> str:
    """Return the kind of state to report of a server; "" for none."""
    match state.status:
        case McpStatus.READY:
            return _READY
        case McpStatus.STARTING | McpStatus.RESTARTING:
            return _STARTING
        case McpStatus.DISABLED | McpStatus.STOPPED:
            return ""
    return f"{state.status}: {state.message}"


def _ready(state: McpServerState, count: int, *, is_change: bool) -> list[str]:
    """Report that a server is ready, if that is a change, and its own instructions in any case."""
    name = state.config.name
    text = " ".join(clean_text(state.instructions).split())
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}…"
    # Untrusted text: quoted, so that it cannot pass for the person's text or ours.
    instructions = f"of itself it says (not the person): {json.dumps(text, ensure_ascii=False)}"
    if is_change:
        tools = f"{number_of(count, 'tool')} can be called now"
        return [f"The MCP server {name} is ready, {tools}{f'; {instructions}' if text else '.'}"]
    return [f"The MCP server {name} is ready; {instructions}"] if text else []
