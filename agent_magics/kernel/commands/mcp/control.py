"""``%agent mcp``: lists, starts, changes and reads the MCP servers, one function a word."""

import asyncio
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from agent_magics.app import Agent
from agent_magics.dispatch.catalog.offer import estimated_tokens
from agent_magics.kernel.cell.publishing import CellPublisher, is_watched, text_bundle
from agent_magics.kernel.commands.mcp.contents import prompt_of, resource_of
from agent_magics.kernel.commands.mcp.files import (
    add_server,
    remove_server,
    switch_server,
    trust_servers,
)
from agent_magics.kernel.commands.mcp.waiting import wait_for
from agent_magics.kernel.commands.table import table
from agent_magics.kernel.commands.words import Returned, first_line, help_table
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.mcp.client.manager import McpConnectionManager
from agent_magics.mcp.client.server import McpServer
from agent_magics.mcp.config.sources import read_mcp_config
from agent_magics.protocol.brief import meant
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.protocol.mcp import McpServerConfig, McpServerState, McpStatus
from agent_magics.protocol.secrets import KEY_LIKE, SECRET_NAME
from agent_magics.protocol.tools import FunctionToolSpec
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.sources import harmless_url
from agent_magics.render.visible import show_shortened

_LONGEST_COMMAND, _LONGEST_LOG = 200, 20_000
_SHORTEST_SECRET = 8  # of a variable's value; shorter ones occur by chance
_HIDDEN = "…"
_NAMED_VALUE = re.compile(r"([^=:]*[=:]).+", re.S)  # `API_KEY=X`, `Authorization: X`
_PASSWORD = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")  # of an address, such as a database's


def manage_servers(notebook: NotebookAgents, arguments: Sequence[str]) -> str | Returned:
    """Manage MCP servers: ``list``, ``add``, ``status``, ``read URI``; see ``mcp help``.

    Raises:
        FatalError: the words do not fit, or a server refuses.
    """
    word, *rest = arguments or ["list"]
    action = MCP_WORDS.get(word)
    if action is None:
        raise FatalError(f"%agent mcp {word} is not known; {meant(word, MCP_WORDS)}")
    return action(notebook, notebook.agent_named(), rest)


# -- what there is ---------------------------------------------------------------------------------


def _list(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """The servers, where each is named, and how it is reached; starts nothing."""
    _no_words("list", words)
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


def how_reached(server: McpServerConfig, manager: McpConnectionManager | None = None) -> str:
    """Return a server's command line or address, with secrets redacted."""
    if server.url is None:
        line = " ".join([server.command or "", *_shown_args(server.args)])
    else:
        parts = urlsplit(server.url)  # without the query, which may hold keys
        line = f"{parts.scheme}://{parts.netloc}{parts.path}"
    for secret in (*(manager.secrets() if manager else ()), *_secret_variables()):
        line = line.replace(secret, _HIDDEN)
    return show_shortened(_PASSWORD.sub(rf"\1{_HIDDEN}@", line), _LONGEST_COMMAND)


def _shown_args(args: Sequence[str]) -> Iterator[str]:
    hides_next = False
    for word in args:
        named = _NAMED_VALUE.fullmatch(word)
        if named and SECRET_NAME.search(named[1]):
            yield f"{named[1]}{_HIDDEN}"
        else:
            yield _HIDDEN if hides_next or KEY_LIKE.match(word) else word
        # `--token X`: the next word is the secret.
        hides_next = not named and word.startswith("-") and bool(SECRET_NAME.search(word))


def _secret_variables() -> list[str]:
    """Return values of secret environment variables, which ``${API_KEY}`` may have inserted."""
    named = (value for name, value in os.environ.items() if SECRET_NAME.search(name))
    return [value for value in named if len(value) >= _SHORTEST_SECRET]


def _status(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """Starts the servers that are enabled, waits for them, and says how they are."""
    _no_words("status", words)
    manager = _manager(agent)
    manager.start()
    wait_for(agent, _settled(manager))
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


def _logs(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME: the last of what a server wrote beside the protocol (its stderr)."""
    (name,) = _words("logs", words, "NAME")
    text = _server(agent, name).log.text()
    if not text:
        return f"MCP server {code_span(name)} has written nothing."
    return fenced(show_shortened(text, _LONGEST_LOG))


# -- what is done ----------------------------------------------------------------------------------


def _add(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME -- COMMAND ARGS, or NAME URL: writes a server into your config.toml (--project)."""
    return add_server(agent.config.cwd, words)


def _remove(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME: takes a server out of the config.toml that names it (--project: of the project)."""
    return remove_server(agent.config.cwd, words)


def _enable(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME: lets a server start again."""
    return _switch(notebook, agent, words, on=True)


def _disable(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME: ends a server and does not start it any more."""
    return _switch(notebook, agent, words, on=False)


def _switch(notebook: NotebookAgents, agent: Agent, words: Sequence[str], *, on: bool) -> str:
    (name,) = _words("enable" if on else "disable", words, "NAME")
    kept = switch_server(agent.config.cwd, notebook.settings.mcp_servers, name, on=on)
    if agent.mcp is not None and not kept:  # as the file is now
        server = _server(agent, name)
        wait_for(agent, server.enable() if on else server.disable())
    done = "enabled" if on else "disabled"
    return f"MCP server {code_span(name)} is {done} {kept or 'for this session'}."


def _restart(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME: ends a server and starts it again, also one that ended too often."""
    (name,) = _words("restart", words, "NAME")
    server = _server(agent, name)
    if server.standing.status is McpStatus.DISABLED:
        raise FatalError(f"MCP server {name!r} is disabled; %agent mcp enable {name} starts it.")
    wait_for(agent, server.restart())
    return _status(notebook, agent, ())


def _login(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME: logs in to a server over HTTP; you open the address that is shown."""
    (name,) = _words("login", words, "NAME")
    server = _server(agent, name)
    addresses: list[str] = []
    output = _Passing(notebook)

    def look_up() -> None:
        while addresses:
            output.show(login_text(name, addresses.pop(0)))

    wait_for(agent, server.login(addresses.append), look_up)
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


def _logout(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """NAME: forgets the tokens of a login."""
    (name,) = _words("logout", words, "NAME")
    wait_for(agent, _server(agent, name).logout())
    return f"The login to MCP server {code_span(name)} is forgotten."


def _trust(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """Shows the project's files that name servers, and trusts them: trust, then trust DIGEST."""
    return trust_servers(agent.config.cwd, words, how_reached)


def _read(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str | Returned:
    """[SERVER] URI: returns a resource as a Python value; without words lists them."""
    return resource_of(agent, _manager(agent), words)


def _prompt(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str | Returned:
    """NAME key=value: returns a server's prompt as text, for {{...}}; without words lists them."""
    return prompt_of(agent, _manager(agent), words)


def _help(notebook: NotebookAgents, agent: Agent, words: Sequence[str]) -> str:
    """These words."""
    _no_words("help", words)
    return help_table("%agent mcp", ((word, first_line(MCP_WORDS[word])) for word in MCP_WORDS))


def _manager(agent: Agent) -> McpConnectionManager:
    manager = agent.mcp
    if manager is None:
        raise FatalError("There are no MCP servers; %agent mcp add NAME -- COMMAND adds one.")
    return manager


def _server(agent: Agent, name: str) -> McpServer:
    try:
        return _manager(agent).server(name)
    except RespondToModel as error:
        raise FatalError(str(error)) from None


def _no_words(word: str, words: Sequence[str]) -> None:
    if words:
        raise FatalError(f"%agent mcp {word} takes nothing behind it.")


def _words(word: str, words: Sequence[str], *names: str) -> Sequence[str]:
    if len(words) != len(names):
        raise FatalError(f"%agent mcp {word} takes: {' '.join(names)}.")
    return words


MCP_WORDS: dict[str, Callable[[NotebookAgents, Agent, Sequence[str]], str | Returned]] = {
    "list": _list,
    "add": _add,
    "remove": _remove,
    "enable": _enable,
    "disable": _disable,
    "restart": _restart,
    "status": _status,
    "logs": _logs,
    "login": _login,
    "logout": _logout,
    "trust": _trust,
    "read": _read,
    "prompt": _prompt,
    "help": _help,
}
