"""Tools for all MCP servers alike: a call by server and name, and their resources.

They are in every request of an agent with servers, so their docstrings say only what their names
do not.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.mcp import McpPage, McpResource
from agent_magics.protocol.tools import ToolOutput
from agent_magics.tools.mcp_results import contents_output

_NO_SERVERS = "There are no MCP servers here."


@tool(mutating=False)
async def mcp_call_tool(
    server: str,
    tool: str = "",
    arguments: dict[str, Any] | None = None,
    *,
    ctx: ToolContext | None = None,
) -> ToolOutput:
    """Call a tool of an MCP server; waits for one that is starting.

    Args:
        tool: its name there; without one, the server's tools are listed.
    """
    ctx = _inside(ctx)
    servers = ctx.turn.servers
    if server not in (state.config.name for state in servers.states):
        raise RespondToModel(_unknown(server, ctx))
    why = await servers.arrived(server)
    if why:
        raise RespondToModel(why)
    name = servers.name_of(server, tool)
    if name is None and servers.handler(tool) is not None and tool.startswith("mcp__"):
        name = tool  # as it is offered
    if name is not None:
        output: ToolOutput = await ctx.call(name, arguments or {})
        return output
    listed = _list_tools(server, ctx)
    if not tool:
        return ToolOutput(listed)
    raise RespondToModel(f"{server} has no tool named {tool!r}. {listed}")


@tool(mutating=False, parallel=True)
async def list_mcp_resources(
    server: str = "", cursor: str = "", *, ctx: ToolContext | None = None
) -> ToolOutput:
    """List what MCP servers offer to read.

    Args:
        server: only this one.
        cursor: where its earlier list goes on.
    """
    ctx = _inside(ctx)
    return await _listed(ctx.turn.servers.manager.list_resources, server, cursor, ctx)


@tool(mutating=False, parallel=True)
async def list_mcp_resource_templates(
    server: str = "", cursor: str = "", *, ctx: ToolContext | None = None
) -> ToolOutput:
    """List patterns of addresses to read; {...} is filled in. Like list_mcp_resources."""
    ctx = _inside(ctx)
    return await _listed(ctx.turn.servers.manager.list_resource_templates, server, cursor, ctx)


@tool(mutating=False, parallel=True)
async def read_mcp_resource(server: str, uri: str, *, ctx: ToolContext | None = None) -> ToolOutput:
    """Read a resource of an MCP server."""
    ctx = _inside(ctx)
    try:
        contents = await ctx.turn.servers.manager.read_resource(server, uri)
    except FatalError as error:
        raise RespondToModel(str(error)) from error
    return contents_output(contents, ctx)


def _inside(ctx: ToolContext | None) -> ToolContext:
    if ctx is None:
        raise RespondToModel("This works inside a turn; by hand use agent.mcp.")
    if ctx.turn.servers is None:
        raise RespondToModel(_NO_SERVERS)
    return ctx


def _unknown(server: str, ctx: ToolContext) -> str:
    names = ", ".join(state.config.name for state in ctx.turn.servers.states)
    return f"There is no MCP server named {server!r}; there are: {names}."


def _list_tools(server: str, ctx: ToolContext) -> str:
    handlers = ctx.turn.servers.handlers_of(server)
    if not handlers:
        return "It offers no tools."
    lines = [
        f"{name}({', '.join(each.card.parameters.get('properties', {}))}): "
        f"{each.card.description.partition(chr(10))[0]}"
        for name, each in handlers.items()
    ]
    return "Its tools:\n" + "\n".join(lines)


# -- resources -------------------------------------------------------------------------------------


async def _listed(
    ask: Callable[[str, str], Awaitable[McpPage]], server: str, cursor: str, ctx: ToolContext
) -> ToolOutput:
    """List one page of one server, or the first page of each."""
    if cursor and not server:
        raise RespondToModel("cursor: it belongs to one server; say which (server=...).")
    states = ctx.turn.servers.states
    if server and server not in (state.config.name for state in states):
        raise RespondToModel(_unknown(server, ctx))
    names = [server] if server else [s.config.name for s in states if s.has_resources]
    lines: list[str] = []
    found: list[McpResource] = []
    for name in names:
        try:
            page = await ask(name, cursor)
        except (RespondToModel, FatalError) as error:
            if server:
                raise RespondToModel(str(error)) from error
            lines.append(f"{name}: {error}")
            continue
        found += page.items
        lines += [_line(each) for each in page.items]
        if page.next_cursor:
            lines.append(f"{name} has more: server={name!r}, cursor={page.next_cursor!r}")
    text = "\n".join(lines) or "There is nothing."
    return ToolOutput(text, value=found)


def _line(each: McpResource) -> str:
    about = [each.mime_type, "" if each.size is None else f"{each.size:,} bytes"]
    kind = ", ".join(filter(None, about))
    title = each.title or (each.name if each.name != each.uri else "")
    words = " - ".join(filter(None, (title, " ".join(each.description.split())[:200])))
    line = f"{each.server}: {each.uri}"
    return line + (f" ({kind})" if kind else "") + (f" {words}" if words else "")
