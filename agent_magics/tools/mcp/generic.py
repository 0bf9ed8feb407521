"""Tools for all MCP servers alike: a call by server and name, and their resources.

They are in every request of an agent with servers, so their docstrings say only what their names
do not.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.dispatch.turn import AgentServers
from agent_magics.protocol.errors import FatalError, RespondToModel, short_message
from agent_magics.protocol.mcp import McpPage, McpResource
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import meant
from agent_magics.tools.mcp.results import contents_output

if TYPE_CHECKING:  # a run without servers does not import it
    from agent_magics.mcp.client.server import McpServer

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
    ctx, servers = _inside(ctx)
    if server not in (state.config.name for state in servers.states):
        raise RespondToModel(_unknown(server, servers))
    why = await servers.arrived(server)
    if why:
        raise RespondToModel(why)
    name = servers.name_of(server, tool)
    if name is None and servers.handler(tool) is not None and tool.startswith("mcp__"):
        name = tool  # as it is offered
    if name is not None:
        return await ctx.call(name, arguments or {})
    listed = servers.list_tools(server)
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
    _, servers = _inside(ctx)
    return await _listed(lambda each: each.list_resources(cursor), server, cursor, servers)


@tool(mutating=False, parallel=True)
async def list_mcp_resource_templates(
    server: str = "", cursor: str = "", *, ctx: ToolContext | None = None
) -> ToolOutput:
    """List patterns of addresses to read; {...} is filled in. Like list_mcp_resources."""
    _, servers = _inside(ctx)
    return await _listed(lambda each: each.list_resource_templates(cursor), server, cursor, servers)


@tool(mutating=False, parallel=True)
async def read_mcp_resource(server: str, uri: str, *, ctx: ToolContext | None = None) -> ToolOutput:
    """Read a resource of an MCP server."""
    ctx, servers = _inside(ctx)
    try:
        contents = await servers.manager.server(server).read_resource(uri)
    except FatalError as error:
        raise RespondToModel(short_message(error)) from error
    return contents_output(contents, ctx)


def _inside(ctx: ToolContext | None) -> tuple[ToolContext, AgentServers]:
    if ctx is None:
        raise RespondToModel("This works inside a turn; by hand use agent.mcp.")
    if ctx.turn.servers is None:
        raise RespondToModel(_NO_SERVERS)
    return ctx, ctx.turn.servers


def _unknown(server: str, servers: AgentServers) -> str:
    names = (state.config.name for state in servers.states)
    return f"There is no MCP server named {server!r}; {meant(server, names)}"


# -- resources -------------------------------------------------------------------------------------


async def _listed(
    ask: "Callable[[McpServer], Awaitable[McpPage]]",
    server: str,
    cursor: str,
    servers: AgentServers,
) -> ToolOutput:
    """List one page of one server's resources, or the first page of each server's."""
    if cursor and not server:
        raise RespondToModel("cursor: it belongs to one server; say which (server=...).")
    states = servers.states
    if server and server not in (state.config.name for state in states):
        raise RespondToModel(_unknown(server, servers))
    names = [server] if server else [s.config.name for s in states if s.has_resources]
    lines: list[str] = []
    found: list[McpResource] = []
    for name in names:
        try:
            page = await ask(servers.manager.server(name))
        except (RespondToModel, FatalError) as error:
            if server:
                raise RespondToModel(short_message(error)) from error
            lines.append(f"{name}: {short_message(error)}")
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
    text = " - ".join(filter(None, (title, " ".join(each.description.split())[:200])))
    line = f"{each.server}: {each.uri}"
    return line + (f" ({kind})" if kind else "") + (f" {text}" if text else "")
