"""``%agent settings``: shows the settings and their sources; trusts a project's settings."""

from dataclasses import asdict, is_dataclass

from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.models.error_redaction import shown_address
from agent_magics.protocol.config import Where
from agent_magics.protocol.errors import FatalError
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.settings.files import ProjectSettings
from agent_magics.settings.sources import Resolved
from agent_magics.settings.table import SETTINGS, settings_in
from agent_magics.text.brief import brief


def settings_table(resolved: Resolved) -> str:
    """Return all settings as a table: name, value and source; keys are redacted."""
    # A conversation keeps the workspace that it began with, wherever that came from.
    origins = {**resolved.origins, "cwd": "conversation"}
    rows = [
        (code_span(name), _shown(name, resolved), origins[name])
        for name in SETTINGS
        if name != "api_key"
    ]
    return table(("Setting", "Value", "From"), rows)


def _shown(name: str, resolved: Resolved) -> str:
    value = getattr(resolved.settings, name)
    if value is None or value == "" or value == () or value == {}:
        return "-"
    if name in ("mcp_servers", "language_servers", "hooks"):  # which may hold keys
        return f"{len(value)} given"
    if name == "base_url":
        value = shown_address(value)
    if is_dataclass(value) and not isinstance(value, type):
        value = ", ".join(f"{each}={given}" for each, given in asdict(value).items())
    return code_span(brief(str(value), 120))


def _listing(notebook: NotebookAgents) -> str:
    """List the settings, with the source of each value."""
    resolved = notebook.settings_of(notebook.agent_named())
    return "\n\n".join([settings_table(resolved), *resolved.warnings])


def _trust(notebook: NotebookAgents, digest: str = "") -> str:
    """Show the settings that a project's files name, or trust those of a digest."""
    project = ProjectSettings(notebook.agent_named().settings_now().settings.cwd)
    found, settable = project.read(), settings_in(Where.PROJECT)
    if not found:
        raise FatalError(
            f"There is nothing to trust: no settings stand in [tool.agent-magics] of "
            f"{project.folder / 'pyproject.toml'}, nor in .agent_magics/config.toml beside it."
        )
    # What no project sets may hold a key.
    rows = [
        (
            code_span(name),
            code_span(brief(str(value), 120)) if name in settable else "no project sets it",
            code_span(each.place(name)),
        )
        for each in found
        for name, value in each.values.items()
    ]
    listed = table(("Setting", "Value", "Where"), rows)
    if digest:
        project.trust(digest)
        return (
            f"{listed}\n\nYou trust these settings as they are now; they hold from the next cell."
        )
    if project.is_trusted(found):
        return f"{listed}\n\nYou have trusted these settings as they are now."
    shown = project.digest(found)[:SHOWN_DIGEST]
    return (
        f"{listed}\n\nA project's settings can only make runs stricter. "
        f"`%agent settings trust {shown}` trusts them as they are now; when they change, you are "
        "asked again."
    )


SHOWN_SETTINGS = Command(
    "settings",
    {"": _listing, "trust": _trust, "trust DIGEST": _trust},
    text="List the settings, each value's source too; ``trust`` accepts the project's settings.",
)
