"""``%agent project``: shows all that a project has for agents, and which parts are trusted."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_magics.approval.rules import RuleBook
from agent_magics.config_files.trust import SHOWN_DIGEST, Trustable, check_length
from agent_magics.delegation.files import ProjectAgents
from agent_magics.files.paths import is_folder, typed_path
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.mcp.config.sources import ProjectServers
from agent_magics.project.digests import ProjectText, digest_of_all, trust, untrusted
from agent_magics.project.instructions import describe_problems, read_instructions
from agent_magics.project.memory import note_folders
from agent_magics.project.prompts import find_prompts
from agent_magics.project.root import find_root
from agent_magics.project.skills import find_skills
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table
from agent_magics.settings.files import ProjectSettings
from agent_magics.text.brief import number_of
from agent_magics.tools.catalog.discovery import ProjectTools


@dataclass(frozen=True, slots=True)
class _Section:
    """One part of a project.

    Attributes:
        name: what it is.
        content: what of it there is, as Markdown.
        word: the command that shows it, without ``%agent``.
        digest: what the person would trust; "" where nothing waits.
        trust: trusts what has a digest.
    """

    name: str
    content: str
    word: str
    digest: str = ""
    trust: Callable[[str], Any] | None = None


def _activate(notebook: NotebookAgents, name: str) -> str:
    """Make the project of a folder that of the agent, with a new conversation."""
    folder = typed_path(name)
    if not is_folder(folder):
        raise FatalError(f"{folder} is no folder; %agent project activate takes a project's.")
    before, notebook.settings.cwd = notebook.settings.cwd, str(find_root(folder))
    try:
        notebook.agent_named(new=True)
    except FatalError:
        notebook.settings.cwd = before
        raise
    return _overview(notebook)


def _overview(notebook: NotebookAgents) -> str:
    """List what the project has for agents, and what waits for your trust."""
    workspace = notebook.workspace
    root = find_root(workspace)
    rows = [
        (each.name, each.content, _trust_text(each), f"`%agent {each.word}`")
        for each in _parts(workspace)
    ]
    return (
        f"The project's root is {code_span(str(root))}; the workspace is "
        f"{code_span(str(workspace))}.\n\n"
        + table(("Part", "What there is", "Trust", "More"), rows)
        + "\n\nLook at a part before you trust it: `%agent project trust DIGEST` trusts the one "
        "that has this digest, as it is now."
    )


def _trust_text(part: _Section) -> str:
    if part.digest:
        return f"waits: {code_span(part.digest[:SHOWN_DIGEST])}"
    return "none needed" if part.trust is None else "nothing waits"


def _trust_part(notebook: NotebookAgents, digest: str) -> str:
    """Trust the part that has this digest, as it is now."""
    _trust(_parts(notebook.workspace), digest)
    return _overview(notebook)


def _trust(parts: Sequence[_Section], digest: str) -> None:
    check_length(digest, "%agent project")
    chosen = [each for each in parts if each.digest and each.digest.startswith(digest)]
    if len(chosen) != 1 or chosen[0].trust is None:
        raise FatalError(
            f"Nothing was trusted: no part of the project that waits for trust has the digest "
            f"{digest[:SHOWN_DIGEST]}. It may have changed since; look again with %agent project."
        )
    chosen[0].trust(digest)


# -- the parts -------------------------------------------------------------------------------------


def _parts(workspace: Path) -> list[_Section]:
    return [
        _instructions(workspace),
        _texts("Skills", find_skills(workspace)),
        _texts("Prompts", find_prompts(workspace)),
        _memory(workspace),
        _rules(workspace),
        _of_files("Settings", ProjectSettings(workspace), "settings trust"),
        _of_files("MCP servers", ProjectServers(workspace), "mcp trust"),
        _of_files("Tools", ProjectTools(workspace), "tools trust"),
        _of_files("Agents", ProjectAgents(workspace), "agents trust"),
    ]


def _instructions(workspace: Path) -> _Section:
    files = read_instructions(workspace)
    names = [code_span(each.path) for each in files if not each.problem]
    return _Section(
        "Instructions", " ".join([*names, *describe_problems(files)]) or "none", "status"
    )


def _texts(name: str, found: Sequence[ProjectText]) -> _Section:
    names = ", ".join(code_span(each.name) for each in found) or "none"
    waiting, word = untrusted(found), name.lower()
    digest = digest_of_all(waiting) if waiting else ""
    return _Section(name, names, word, digest, lambda given: trust(word, found, given))


def _memory(workspace: Path) -> _Section:
    folder = note_folders(workspace)["project"]
    found = folder.read()
    topics = ", ".join(code_span(note.topic) for note in folder.all_notes(found)) or "none"
    digest = "" if folder.is_usable(found) else folder.digest(found)
    return _Section("Memory", topics, "memory", digest, folder.trust)


def _rules(workspace: Path) -> _Section:
    book = RuleBook(workspace)
    count = len(book.project.rules)
    content = f"{count} in {code_span(str(book.project_file))}" if count else "none"
    digest = book.project.digest if book.withheld else ""
    return _Section("Rules", content, "approvals", digest, lambda _: book.trust())


def _of_files(name: str, matter: Trustable[Any], word: str) -> _Section:
    """Return a part whose files are trusted together."""
    try:
        found = matter.read()
    except FatalError as error:
        return _Section(name, short_message(error), word, "", matter.trust)
    digest = "" if not found or matter.is_trusted(found) else matter.digest(found)
    return _Section(
        name, number_of(len(found), "file") if found else "none", word, digest, matter.trust
    )


PROJECT = Command(
    "project",
    {"": _overview, "trust DIGEST": _trust_part, "activate FOLDER": _activate},
    text="List what the project has for agents; ``trust DIGEST``, ``activate FOLDER``.",
)
