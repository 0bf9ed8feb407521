"""``%agent lsp``: lists the language servers, reads their logs, and starts them again."""

import asyncio
from collections.abc import Sequence

from agent_magics.app import Agent
from agent_magics.kernel.commands.mcp.waiting import wait_for
from agent_magics.kernel.commands.table import table
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.visible import show_shortened
from agent_magics.symbols.servers.lifecycle import LanguageServer, ServerState
from agent_magics.symbols.servers.manager import shared_manager
from agent_magics.symbols.servers.specs import (
    client_is_missing,
    find_server,
    read_table,
    what_is_missing,
)

_LONGEST_LOG = 20_000  # characters
_LONGEST_PROBLEM = 500
_WORDS = ("", "log", "restart", "stop")
_USAGE = "%agent lsp takes: nothing, log [NAME], restart [NAME] or stop [NAME]."


def manage_language_servers(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """Show the language servers that were started; ``log``, ``restart`` or ``stop [NAME]``."""
    word, name, *rest = (*arguments, "", "")
    if any(rest) or word not in _WORDS or (name and word == ""):
        raise FatalError(_USAGE)
    agent = notebook.agent_named()
    if word in ("restart", "stop"):
        wait_for(agent, _each(word, name))
    return _logs(agent, name) if word == "log" else _listed(agent, notebook.settings_now())


async def _each(word: str, name: str) -> None:
    servers = _servers(await _named(name), name)
    if word == "restart":
        await shared_manager().restart(name)
    else:
        await asyncio.gather(*(server.stop() for server in servers))


async def _named(name: str) -> list[LanguageServer]:
    return shared_manager().named(name)


def _servers(found: list[LanguageServer], name: str) -> list[LanguageServer]:
    if name and not found:
        raise FatalError(f"No language server {name!r} was started; %agent lsp lists them.")
    return found


def _logs(agent: Agent, name: str) -> str:
    servers = _servers(wait_for(agent, _named(name)), name)
    texts = [
        f"{code_span(server.spec.name)} in {code_span(str(server.root))}:\n\n"
        + fenced(show_shortened(server.log.text(), _LONGEST_LOG) or "(nothing)")
        for server in servers
    ]
    return "\n\n".join(texts) or "No language server was started."


def _listed(agent: Agent, settings: Settings) -> str:
    async def states() -> tuple[ServerState, ...]:
        return shared_manager().states()

    rows = [_row(state) for state in wait_for(agent, states())]
    if not rows:
        return f"No language server was started; a question about symbols does. {_python(settings)}"
    return table(("Server", "Language", "Folder", "State", "Memory", "Restarts", "Idle", ""), rows)


def _row(state: ServerState) -> tuple[str, ...]:
    problem = show_shortened(state.problem, _LONGEST_PROBLEM)
    return (
        code_span(state.name),
        state.language,
        code_span(str(state.root)),
        str(state.state),
        f"{state.memory / 1e6:.0f} MB",
        str(state.restarts),
        f"{state.idle:.0f} s",
        code_span(problem) if problem else "",
    )


def examine_language_servers(settings: Settings) -> list[tuple[str, str]]:
    """Return the line of ``%agent doctor`` as (subject, finding) pairs."""
    return [("Language servers", _python(settings))]


def _python(settings: Settings) -> str:
    """Say which server Python has."""
    try:
        own = read_table(settings.language_servers)
    except FatalError as error:
        return str(error)
    if "python" in own and own["python"] is None:
        return "none for Python, by the setting language_servers"
    found = find_server("python", own)
    if found is None:
        return what_is_missing("python")
    return client_is_missing() or f"Python has {code_span(found.name)} (from {found.source})"
