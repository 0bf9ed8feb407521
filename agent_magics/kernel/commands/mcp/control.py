"""``%agent mcp``: lists, starts, changes and reads the MCP servers, one function a word."""

import asyncio
import uuid
from contextlib import suppress
from urllib.parse import urlsplit

from agent_magics.dispatch.catalog.offer import estimated_tokens
from agent_magics.kernel.cell.publishing import CellPublisher, is_watched, text_bundle
from agent_magics.kernel.commands.mcp.contents import (
    get_prompt,
    list_prompts,
    list_resources,
    read_resource,
)
from agent_magics.kernel.commands.mcp.files import (
    add_server,
    how_reached,
    remove_server,
    switch_server,
    trust_servers,
)
from agent_magics.kernel.commands.mcp.waiting import manager_of, server_of, wait_for
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.mcp.config.sources import read_mcp_config
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.mcp import McpServerConfig, McpServerState, McpStatus
from agent_magics.protocol.tools import FunctionToolSpec
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.sources import harmless_url
from agent_magics.render.tables import table
from agent_magics.render.visible import show_shortened
from agent_magics.text.typed import as_typed

_LONGEST_LOG = 20_000


# -- what there is ---------------------------------------------------------------------------------


def _list(notebook: NotebookAgents) -> str:
    """The servers, where each is named, and how it is reached; starts nothing."""
    agent = notebook.agent_named()
    config = read_mcp_config(agent.config.cwd, notebook.settings.mcp_servers)
    manager = agent.mcp
    states = {} if manager is None else {one.config.name: one for one in manager.states()}
    rows = [
        (
            code_span(server.name),
            code_span(how_reached(server, manager)),
            str(states[server.name].status) if server.name in states else _status_of(server),
            code_span(server.source),
        )
        for server in config.servers
    ]
    listed = table(("Server", "Reached by", "Status", "Where it stands"), rows) if rows else _NONE
    return "\n\n".join([listed, *config.warnings])


_NONE = (
    "There are no MCP servers. `%agent mcp add NAME -- COMMAND ARGS` adds a program, "
    "`%agent mcp add NAME URL` a server over HTTP."
)


def _status_of(server: McpServerConfig) -> str:
    return str(McpStatus.STOPPED if server.enabled else McpStatus.DISABLED)


def _status(notebook: NotebookAgents) -> str:
    """Starts the servers that are enabled, waits for them, and says how they are."""
    manager = manager_of(notebook)
    manager.start()
    wait_for(notebook.agent_named(), _settled(manager))
    rows = [_status_row(state) for state in manager.states()]
    return table(("Server", "Status", "Tools", "Tokens", "Restarts", "Message"), rows)


async def _settled(manager: McpConnectionManager) -> None:
    """Wait until no server is starting; each has its own time limit."""

    async def settle(server: str) -> None:
        with suppress(RespondToModel):
            await manager.server(server).standing.ready()

    enabled = (one.config.name for one in manager.states() if one.status != McpStatus.DISABLED)
    await asyncio.gather(*map(settle, enabled))


def _status_row(state: McpServerState) -> tuple[str, ...]:
    tokens = sum(
        estimated_tokens(FunctionToolSpec(tool.name, tool.description, dict(tool.input_schema)))
        for tool in state.tools
    )
    message = code_span(show_shortened(state.message, 500)) if state.message else ""
    name, version = state.config.name, state.version
    return (
        code_span(f"{name} {version}" if version else name),
        str(state.status),
        str(len(state.tools)),
        str(tokens),
        str(state.restarts),
        message,
    )


def _logs(notebook: NotebookAgents, name: str) -> str:
    """The last of what a server wrote beside the protocol (its stderr)."""
    text = server_of(notebook, name).log.text()
    if not text:
        return f"MCP server {code_span(name)} has written nothing."
    return fenced(show_shortened(text, _LONGEST_LOG))


# -- what is done ----------------------------------------------------------------------------------


def _enable(notebook: NotebookAgents, name: str) -> str:
    """Lets a server start again."""
    return _switch(notebook, name, on=True)


def _disable(notebook: NotebookAgents, name: str) -> str:
    """Ends a server and does not start it any more."""
    return _switch(notebook, name, on=False)


def _switch(notebook: NotebookAgents, name: str, *, on: bool) -> str:
    agent = notebook.agent_named()
    kept = switch_server(agent.config.cwd, notebook.settings.mcp_servers, name, on=on)
    if agent.mcp is not None and not kept:  # as the file is now
        server = server_of(notebook, name)
        wait_for(agent, server.enable() if on else server.disable())
    done = "enabled" if on else "disabled"
    return f"MCP server {code_span(name)} is {done} {kept or 'for this session'}."


def _restart(notebook: NotebookAgents, name: str) -> str:
    """Ends a server and starts it again, also one that ended too often."""
    server = server_of(notebook, name)
    if server.standing.status is McpStatus.DISABLED:
        start = f"%agent mcp enable {as_typed(name)}"
        raise FatalError(f"MCP server {name!r} is disabled; {start} starts it.")
    wait_for(notebook.agent_named(), server.restart())
    return _status(notebook)


def _login(notebook: NotebookAgents, name: str) -> str:
    """Logs in to a server over HTTP; you open the address that is shown."""
    server = server_of(notebook, name)
    addresses: list[str] = []
    output = _Passing(notebook)

    def look_up() -> None:
        while addresses:
            output.show(login_text(name, addresses.pop(0)))

    wait_for(notebook.agent_named(), server.login(addresses.append), look_up)
    output.show(f"You are logged in to MCP server {code_span(name)}.")
    return ""


class _Passing:
    """An output whose text the next one replaces, where the front end can do that.

    The address of a login is valid once, and must not be saved.
    """

    def __init__(self, notebook: NotebookAgents) -> None:
        self._publisher = CellPublisher(notebook.shell)
        self._replaces = is_watched(notebook.shell)
        self._display_id = ""

    def show(self, text: str) -> None:
        """Show Markdown."""
        bundle = text_bundle(text)
        if self._display_id and self._replaces:
            self._publisher.update(bundle, self._display_id)
            return
        self._display_id = uuid.uuid4().hex
        self._publisher.publish(bundle, self._display_id)


def login_text(server: str, address: str) -> str:
    """Return the text for a login: the address, with its host spelled out.

    Raises:
        FatalError: it is not a web address.
    """
    url = harmless_url(address)
    if not url:
        raise FatalError(f"MCP server {server!r} names no page where one could log in.")
    return (
        f"To log in to MCP server {code_span(server)}, open [this page of "
        f"{urlsplit(url).netloc}]({url}); this cell waits for it. The address: "
        f"{code_span(address)}"
    )


def _logout(notebook: NotebookAgents, name: str) -> str:
    """Forgets the tokens of a login."""
    wait_for(notebook.agent_named(), server_of(notebook, name).logout())
    return f"The login to MCP server {code_span(name)} is forgotten."


def _trust(notebook: NotebookAgents, given: str = "") -> str:
    """Shows the project's files that name servers, and trusts them: trust, then trust DIGEST."""
    return trust_servers(notebook.agent_named().config.cwd, given)


def _help(notebook: NotebookAgents) -> str:
    """These words."""
    return SERVERS.details


SERVERS = Command(
    "mcp",
    {
        "": _list,
        "list": _list,
        "add NAME ...": add_server,
        "remove NAME ...": remove_server,
        "enable NAME": _enable,
        "disable NAME": _disable,
        "restart NAME": _restart,
        "status": _status,
        "logs NAME": _logs,
        "login NAME": _login,
        "logout NAME": _logout,
        "trust [DIGEST]": _trust,
        "read": list_resources,
        "read URI": read_resource,
        "read SERVER URI": read_resource,
        "prompt": list_prompts,
        "prompt NAME [KEY=VALUE] ...": get_prompt,
        "help": _help,
    },
    text="Manage MCP servers: ``list``, ``add``, ``status``, ``read URI``; see ``mcp help``.",
)
