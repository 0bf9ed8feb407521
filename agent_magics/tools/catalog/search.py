"""``tool_search``: finds tools that a request leaves out because their list is too long."""

from typing import Any

from agent_magics.dispatch.catalog.offer import list_names
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.dispatch.turn import AgentServers
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import FunctionToolSpec, ToolSpec

MOST_FOUND = 50
OFFERED = "All tools there are have been offered already."


@tool(mutating=False, parallel=True)
async def tool_search(query: str, limit: int = 8, *, ctx: ToolContext | None = None) -> str:
    """Find more tools by words of their names, descriptions and parameters.

    What is found can be called from your next step on.

    Args:
        query: what you want to do, in a few words.
        limit: most tools to return.
    """
    offer = ctx.turn.offer if ctx is not None else None
    if ctx is None or offer is None:
        return OFFERED
    if limit < 1:
        raise RespondToModel(f"limit: expected a number from 1 to {MOST_FOUND}, got {limit}.")
    servers = ctx.turn.servers
    specs = offer.now().search(query, min(limit, MOST_FOUND))
    if not specs and servers is not None:  # one that is still starting may have it
        await servers.settled()
        specs = offer.now().search(query, min(limit, MOST_FOUND))
    deferred = offer.now().deferred
    if not deferred:
        return OFFERED
    if not specs:
        return f"No tool fits {query!r}. There are: {list_names(deferred)}."
    for spec in specs:
        ctx.turn.found.setdefault(spec.name)
    return "\n".join([*map(_line, specs), *_still_starting(servers)])


def _still_starting(servers: AgentServers | None) -> list[str]:
    names = [] if servers is None else servers.starting
    return [f"(MCP servers still starting: {', '.join(names)}.)"] if names else []


def _line(spec: ToolSpec) -> str:
    if not isinstance(spec, FunctionToolSpec):
        return spec.name
    properties: Any = spec.parameters.get("properties", {})  # an object, as JSON
    names = ", ".join(properties)
    return f"{spec.name}({names}): {spec.description.partition(chr(10))[0]}"
