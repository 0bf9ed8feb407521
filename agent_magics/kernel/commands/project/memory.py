"""``%agent memory``: lists the notes that agents keep, shows, edits, deletes and trusts them."""

import re

from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.files.paths import printable
from agent_magics.kernel.commands.words import Command
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.project.fingerprints import Fingerprints
from agent_magics.project.memory import Note, NoteFolder, StoredNotes, note_folders, with_changes
from agent_magics.protocol.errors import FatalError, RespondToModel, full_message
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.tables import table
from agent_magics.render.visible import show_invisible
from agent_magics.text.brief import meant
from agent_magics.text.line_ends import with_newlines


def _find(notebook: NotebookAgents, topic: str, scope: str) -> tuple[NoteFolder, Note]:
    folders = note_folders(notebook.workspace).values()
    found = [
        (folder, note)
        for folder in folders
        for note in folder.all_notes(folder.read())
        if note.topic == topic and scope in ("", folder.scope)
    ]
    if not found:
        there = (note.topic for each in folders for note in each.all_notes(each.read()))
        raise FatalError(f"There is no note {topic!r}; {meant(topic, there)}")
    if len(found) > 1:
        raise FatalError(f"{topic} stands in both places; add project or user.")
    return found[0]


def _listing(notebook: NotebookAgents) -> str:
    """List the notes: whose, when written, whether stale or not trusted."""
    workspace = notebook.workspace
    digests = Fingerprints(workspace, notebook.shell.user_ns)
    read = [(folder, folder.read()) for folder in note_folders(workspace).values()]
    rows = [row for folder, found in read for row in _rows(folder, found, digests)]
    parts = ["There are no notes: an agent keeps them with the tool `remember`."]
    if rows:
        parts = [table(("Topic", "Whose", "First line", "Written", "State"), rows)]
    for folder, found in read:
        if not folder.is_usable(found):
            digest = folder.digest(found)[:SHOWN_DIGEST]
            parts.append(
                "The project's notes are left out until you trust them. A model reads what they "
                f"say; read them first (`%agent memory show TOPIC`). `%agent memory trust {digest}`"
                " trusts them as they are now."
            )
        parts += [
            f"{code_span(printable(name))} in {code_span(str(folder.folder))} is no note: "
            f"{code_span(problem)}."
            for name, problem in found.problems.items()
        ]
    return "\n\n".join(parts)


def _rows(folder: NoteFolder, found: StoredNotes, digests: Fingerprints) -> list[tuple[str, ...]]:
    state = "current" if folder.is_usable(found) else "not trusted"
    return [_row(with_changes(note, digests), state) for note in folder.all_notes(found)]


def _row(note: Note, state: str) -> tuple[str, ...]:
    if note.moved:
        state = f"stale: {code_span(', '.join(name.strip('`') for name in note.moved))} changed"
    first = note.text.partition("\n")[0].lstrip("# ")
    return (
        code_span(note.topic),
        note.scope,
        code_span(show_invisible(first[:80])) if first else "",
        note.written,
        state,
    )


def _show(notebook: NotebookAgents, topic: str, scope: str = "") -> str:
    """Show a note as it is written."""
    folder, note = _find(notebook, topic, scope)
    about = ", ".join(code_span(anchor.name) for anchor in note.about)
    head = f"{code_span(str(folder.path_of(note.topic)))}, written {note.written}"
    # As it is written: what a model reads must not be drawn as something else.
    text = fenced(show_invisible(note.text))
    return f"{head}{f', about {about}' if about else ''}\n\n{text}"


# It expands these in the line of a magic.
_READ_BY_IPYTHON = re.compile(r"[{}$\"\\\n\r]")


def _edit(notebook: NotebookAgents, topic: str, scope: str = "") -> str:
    """Put a note into the next cell, which saves it."""
    folder, note = _find(notebook, topic, scope)
    path = str(folder.path_of(note.topic))
    if _READ_BY_IPYTHON.search(path):
        raise FatalError(f"No cell can write to {path}, whose name IPython would read as code.")
    text = with_newlines(folder.read().files[note.topic].decode("utf-8", "replace"))
    notebook.shell.set_next_input(f'%%writefile "{path}"\n{text}')
    return f"Change {code_span(note.topic)} in the next cell, and run it to save."


def _delete(notebook: NotebookAgents, topic: str, scope: str = "") -> str:
    """Delete a note."""
    folder, note = _find(notebook, topic, scope)
    try:
        folder.write(note.topic, None, by_person=True)
    except RespondToModel as error:
        raise FatalError(full_message(error)) from None
    return f"{code_span(note.topic)} is deleted."


def _trust(notebook: NotebookAgents, digest: str) -> str:
    """Trust the project's notes that have this digest, as they are now."""
    note_folders(notebook.workspace)["project"].trust(digest)
    return "The project's notes are used from the next conversation on."


MEMORY = Command(
    "memory",
    {
        "": _listing,
        "show TOPIC [project|user]": _show,
        "edit TOPIC [project|user]": _edit,
        "delete TOPIC [project|user]": _delete,
        "trust DIGEST": _trust,
    },
    text="List the notes that agents keep; ``show``, ``edit``, ``delete TOPIC``, ``trust``.",
)
