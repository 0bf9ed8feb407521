"""What a model is told of MCP servers without having asked: one line each, and each thing once."""

import json
from collections.abc import Collection, Mapping, Sequence

from agent_magics.protocol.mcp import McpServerState, McpStatus

# Characters of what a server says of itself.
_LONGEST = 1_000
_READY, _STARTING = "ready", "starting"


def server_news(
    states: Sequence[McpServerState], counts: Mapping[str, int], told: dict[str, str]
) -> list[str]:
    """Return what is new, and note in `told` that it was told.

    Args:
        states: how the servers stand now.
        counts: server -> how many of its tools can be called.
        told: server -> what this conversation was last told of it.
    """
    news: list[str] = []
    starting: list[str] = []
    for state in states:
        name, now = state.config.name, _kind_of(state)
        before = told.get(name, "")
        if now == before or not (now or before):
            continue
        told[name] = now
        if now == _STARTING:
            starting.append(name)
        elif now == _READY:
            news += _ready(state, counts.get(name, 0), is_news=bool(before))
        else:
            why = state.message.rstrip(".") or "it was switched off"
            news.append(f"The tools of the MCP server {name} are not there: {why}.")
    if starting:
        is_one = len(starting) == 1
        news.append(
            f"{'This MCP server is' if is_one else 'These MCP servers are'} still starting: "
            f"{', '.join(starting)}. {'Its' if is_one else 'Their'} tools are offered as soon as "
            "they are known; mcp_call_tool waits for a server."
        )
    return news


def news_of_the_gone(configured: Collection[str], told: dict[str, str]) -> list[str]:
    """Return which servers that were told of are configured no more, and forget them in `told`."""
    gone = [name for name in told if name not in configured]
    was_there = [name for name in gone if told.pop(name)]
    return [f"The MCP server {name} is not configured any more." for name in was_there]


def _kind_of(state: McpServerState) -> str:
    """Return what there is to tell of a server; "" for nothing."""
    match state.status:
        case McpStatus.READY:
            return _READY
        case McpStatus.STARTING | McpStatus.RESTARTING:
            return _STARTING
        case McpStatus.DISABLED | McpStatus.STOPPED:
            return ""
    return f"{state.status}: {state.message}"


def _ready(state: McpServerState, count: int, *, is_news: bool) -> list[str]:
    """Say that a server is ready where that was open, and what it says of itself in any case."""
    name = state.config.name
    words = " ".join(state.instructions.split())
    if len(words) > _LONGEST:
        words = f"{words[:_LONGEST]}…"
    # Written by a stranger: quoted, so that it cannot pass for the person's words or ours.
    said = f"of itself it says (not the person): {json.dumps(words, ensure_ascii=False)}"
    if is_news:
        tools = f"{count} tool{'' if count == 1 else 's'} can be called now"
        return [f"The MCP server {name} is ready, {tools}{f'; {said}' if words else '.'}"]
    return [f"The MCP server {name} is ready; {said}"] if words else []
