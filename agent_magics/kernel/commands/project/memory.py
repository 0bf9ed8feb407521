"""``%agent memory``: lists the notes that agents keep, shows, edits, deletes and trusts them."""

from collections.abc import Sequence
from typing import Any

from agent_magics.config_files.trust import SHOWN_DIGEST
from agent_magics.files.paths import printable
from agent_magics.kernel.commands.table import table
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.project.fingerprints import Fingerprints
from agent_magics.project.memory import Note, NoteFolder, StoredNotes, note_folders, with_changes
from agent_magics.protocol.brief import meant
from agent_magics.protocol.errors import FatalError, RespondToModel
from agent_magics.render.markdown import code_span, fenced
from agent_magics.render.visible import show_invisible

MEMORY_WORDS = ("show", "edit", "delete", "trust")
_USAGE = "%agent memory takes: nothing, show TOPIC, edit TOPIC, delete TOPIC, trust DIGEST."


def manage_memory(notebook: NotebookAgents, arguments: Sequence[str]) -> str:
    """List the notes that agents keep; ``show``, ``edit``, ``delete TOPIC``, ``trust``.

    After a topic, ``project`` or ``user`` says whose note is meant.

    Raises:
        FatalError: the words do not fit, there is no such note, or the disk refused.
    """
    shell, workspace = notebook.shell, notebook.agent_named().config.cwd
    folders = note_folders(workspace)
    match list(arguments):
        case []:
            found = [(folder, folder.read()) for folder in folders.values()]
            return _listing(found, Fingerprints(workspace, shell.user_ns))
        case ["trust", digest]:
            folders["project"].trust(digest)
            return "The project's notes are used from the next conversation on."
        case [("show" | "edit" | "delete") as word, topic, *scope] if len(scope) <= 1:
            folder, note = _find(list(folders.values()), topic, "".join(scope))
            return _ACTIONS[word](shell, folder, note)
    raise FatalError(_USAGE)


def _find(folders: Sequence[NoteFolder], topic: str, scope: str) -> tuple[NoteFolder, Note]:
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


def _listing(read: Sequence[tuple[NoteFolder, StoredNotes]], digests: Fingerprints) -> str:
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


def _show(shell: Any, folder: NoteFolder, note: Note) -> str:
    about = ", ".join(code_span(anchor.name) for anchor in note.about)
    head = f"{code_span(str(folder.path_of(note.topic)))}, written {note.written}"
    # As it is written: what a model reads must not be drawn as something else.
    text = fenced(show_invisible(note.text))
    return f"{head}{f', about {about}' if about else ''}\n\n{text}"


def _edit(shell: Any, folder: NoteFolder, note: Note) -> str:
    text = folder.read().files[note.topic].decode("utf-8", "replace")
    shell.set_next_input(f'%%writefile "{folder.path_of(note.topic)}"\n{text}')
    return f"Change {code_span(note.topic)} in the next cell, and run it to save."


def _delete(shell: Any, folder: NoteFolder, note: Note) -> str:
    try:
        folder.write(note.topic, None, by_person=True)
    except RespondToModel as error:
        raise FatalError(str(error)) from None
    return f"{code_span(note.topic)} is deleted."


_ACTIONS = {"show": _show, "edit": _edit, "delete": _delete}
