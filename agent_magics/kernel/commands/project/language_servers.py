"""``%agent lsp``: lists the language servers, reads their logs, and starts them again."""

import asyncio

from agent_magics.kernel.commands.mcp.waiting import wait_for
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.tables import table
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


def _stop(notebook: NotebookAgents, name: str = "") -> str:
    """End language servers."""

    async def stop() -> None:
        await asyncio.gather(*(server.stop() for server in _servers(await _named(name), name)))

    wait_for(notebook.agent_named(), stop())
    return _listed(notebook)


def _restart(notebook: NotebookAgents, name: str = "") -> str:
    """End language servers, and start those again that were asked last."""

    async def restart() -> None:
        _servers(await _named(name), name)
        await shared_manager().restart(name)

    wait_for(notebook.agent_named(), restart())
    return _listed(notebook)


async def _named(name: str) -> list[LanguageServer]:
    return shared_manager().named(name)


def _servers(found: list[LanguageServer], name: str) -> list[LanguageServer]:
    if name and not found:
        raise FatalError(f"No language server {name!r} was started; %agent lsp lists them.")
    return found


def _logs(notebook: NotebookAgents, name: str = "") -> str:
    """Show the last lines that servers wrote."""
    servers = _servers(wait_for(notebook.agent_named(), _named(name)), name)
    texts = [
        f"{code_span(server.spec.name)} in {code_span(str(server.root))}:\n\n"
        + fenced(show_shortened(server.log.text(), _LONGEST_LOG) or "(nothing)")
        for server in servers
    ]
    return "\n\n".join(texts) or "No language server was started."


def _listed(notebook: NotebookAgents) -> str:
    """List the language servers that were started."""

    async def states() -> tuple[ServerState, ...]:
        return shared_manager().states()

    rows = [_row(state) for state in wait_for(notebook.agent_named(), states())]
    if not rows:
        python = _python(notebook.settings_now())
        return f"No language server was started; a question about symbols does. {python}"
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
        return short_message(error)
    if "python" in own and own["python"] is None:
        return "none for Python, by the setting language_servers"
    found = find_server("python", own)
    if found is None:
        return what_is_missing("python")
    return client_is_missing() or f"Python has {code_span(found.name)} (from {found.source})"


LANGUAGE_SERVERS = Command(
    "lsp",
    {"": _listed, "log [NAME]": _logs, "restart [NAME]": _restart, "stop [NAME]": _stop},
    text="Show the language servers that were started; ``log``, ``restart`` or ``stop [NAME]``.",
)
