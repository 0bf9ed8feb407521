"""``tool_search``: the way to tools that are not offered because their list is too long."""

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.tools import FunctionToolSpec, ToolSpec

MOST_FOUND = 50


@tool(mutating=False, parallel=True, inline=True)
def tool_search(query: str, limit: int = 8, *, ctx: ToolContext | None = None) -> str:
    """Find more tools by words of their names, descriptions and parameters.

    What is found can be called from your next step on.

    Args:
        query: what you want to do, in a few words.
        limit: most tools to return.
    """
    offer = ctx.turn.offer if ctx is not None else None
    if ctx is None or offer is None or not offer.deferred:
        return "All tools there are have been offered already."
    if limit < 1:
        raise RespondToModel(f"limit: expected a number from 1 to {MOST_FOUND}, got {limit}.")
    specs = offer.search(query, min(limit, MOST_FOUND))
    if not specs:
        return f"No tool fits {query!r}. There are: {', '.join(offer.deferred)}."
    for spec in specs:
        ctx.turn.found.setdefault(spec.name)
    return "\n".join(map(_line, specs))


def _line(spec: ToolSpec) -> str:
    if not isinstance(spec, FunctionToolSpec):
        return spec.name
    names = ", ".join(spec.parameters.get("properties", {}))
    return f"{spec.name}({names}): {spec.description.partition(chr(10))[0]}"
