"""Formats changed files: counts per file, then the diff; as Markdown and as text."""

import re

from agent_magics.protocol.events import ChangedFile, TurnDiffUpdated
from agent_magics.protocol.items import Json, JsonMapping
from agent_magics.render.markdown import code_span, fenced, harmless_prose
from agent_magics.render.visible import show_invisible

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
# Only `%agent diff` shows a longer diff: in a notebook it would hide the answer.
_MOST_LINES = 60
_MOST_FILES = 40
_SAVED = 20_000  # characters of a diff that are saved
LONG = "The diff is long: %agent diff shows it."


def changes_item(
    event: TurnDiffUpdated, *, bare: bool = False, whole: bool = False
) -> dict[str, Json]:
    """Build the saved item (JSON) that lists the files a turn changed, with counts and the diff.

    Args:
        event: the changed files and their unified diff.
        bare: whether to leave the diff out, because it is shown already.
        whole: whether to show a long one, too.

    Returns:
        An item of kind "changes"; at most 40 files, and unless `whole` no diff above 60 lines or
        20,000 characters.
    """
    diff = "" if bare else event.diff
    is_long = not whole and (len(diff) > _SAVED or diff.count("\n") > _MOST_LINES)
    files = event.files
    notes: list[Json] = [*event.notes, *([LONG] if is_long else [])]
    if len(files) > _MOST_FILES:
        notes.insert(0, f"{len(files) - _MOST_FILES} more files changed.")
    runs: list[Json] = [*event.runs]
    return {
        "kind": "changes",
        "files": [_file(file) for file in files[:_MOST_FILES]],
        "diff": "" if is_long else diff,
        "runs": runs,
        "notes": notes,
    }


def _file(file: ChangedFile) -> dict[str, Json]:
    return {
        "path": file.path,
        "change": file.change,
        "added": file.added,
        "removed": file.removed,
        "note": file.note,
    }


def same_lines(one: str, other: str) -> bool:
    """Return whether two unified diffs add and remove the same lines in the same files."""
    # A patch names its files in the order of the model, a turn's diff by name.
    return sorted(_bodies(one)) == sorted(_bodies(other))


def _bodies(diff: str) -> list[list[str]]:
    bodies: list[list[str]] = [[]]
    # Lines of the open hunk that are still to come: only by counting is a removed line "-- x",
    # which stands there as "--- x", told from the head of the next file.
    before = after = 0
    for line in diff.split("\n"):
        if before <= 0 and after <= 0:
            if line.startswith("+++"):
                bodies.append([])
            hunk = _HUNK.match(line)
            before, after = map(int, hunk.groups("1")) if hunk else (0, 0)
            continue
        before -= line[:1] not in ("+", "\\")
        after -= line[:1] not in ("-", "\\")
        if line.startswith(("+", "-")):
            bodies[-1].append(line)
    return bodies


def changes_markdown(item: JsonMapping) -> str:
    """Return a "changes" item as Markdown without active content."""
    lines = [f"**{_heading(item)}**{_total(item)}", ""]
    lines += [
        f"- {code_span(show_invisible(file['path']))} {harmless_prose(counts_of(file))}"
        for file in item["files"]
    ]
    parts = ["\n".join(lines)]
    parts += [f"> **Look at this:** {harmless_prose(text)}" for text in item["runs"]]
    parts += [f"> **Note:** {harmless_prose(text)}" for text in item["notes"]]
    if item["diff"]:
        parts.append(fenced(show_invisible(item["diff"].rstrip("\n")), "diff"))
    return "\n\n".join(parts)


def changes_plain(item: JsonMapping) -> str:
    """Return a "changes" item as plain text."""
    lines = [f"{_heading(item)}{_total(item)}"]
    lines += [f"  {file['path']} {counts_of(file)}" for file in item["files"]]
    lines += [f"Look at this: {text}" for text in item["runs"]]
    lines += [f"Note: {text}" for text in item["notes"]]
    lines += [item["diff"].rstrip()] if item["diff"] else []
    return show_invisible("\n".join(lines))


def _heading(item: JsonMapping) -> str:
    folders = [file["path"].endswith("/") for file in item["files"]]
    return (
        f"{'Folders' if all(folders) else 'Files and folders' if any(folders) else 'Files'} changed"
    )


def _total(item: JsonMapping) -> str:
    files = [file for file in item["files"] if not file["path"].endswith("/")]
    added = sum(file["added"] or 0 for file in files)
    removed = sum(file["removed"] or 0 for file in files)
    return f" ({_count(added, removed)})" if files else ""


def _count(added: int | None, removed: int | None) -> str:
    if added is None or removed is None:
        return "lines not counted"
    return f"+{added} −{removed}"  # noqa: RUF001 - a minus sign, as wide as the plus


def counts_of(file: JsonMapping) -> str:
    """Return what became of a file of a "changes" item: the numbers of its lines, and notes."""
    parts = [] if file["path"].endswith("/") else [_count(file["added"], file["removed"])]
    parts += [file["change"]] if file["change"] != "changed" else []
    parts += [file["note"]] if file["note"] and file["note"] != "folder" else []
    return ", ".join(parts)
