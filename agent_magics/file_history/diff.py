"""Makes unified diffs of changed files, and counts their lines."""

from dataclasses import dataclass
from itertools import pairwise

from agent_magics.file_history.states import PathState
from agent_magics.files.paths import diff_name, printable
from agent_magics.text.differences import hunks_of

_MOST_SHOWN = 2 * 1024 * 1024  # bytes of one file
_NO_END = "\n\\ No newline at end of file"
_KINDS = {"link": "120000", "other": "special"}


@dataclass(frozen=True, slots=True)
class FileDiff:
    """The difference between two versions of one file.

    Attributes:
        text: a unified diff with git's headers, "" where there is nothing to show.
        added, removed: numbers of lines; None where they cannot be counted.
        note: a remark to show beside it.
        hunks: the lines of each hunk, its header first.
    """

    text: str
    added: int | None = 0
    removed: int | None = 0
    note: str = ""
    hunks: tuple[tuple[str, ...], ...] = ()


def file_diff(
    name: str, before: PathState, after: PathState, old: bytes | None, new: bytes | None
) -> FileDiff:
    """Return the difference between `before` and `after`.

    Args:
        name: the path for display.
        before, after: the states of the path.
        old, new: the contents of files, None where they are not kept.
    """
    head = _headers(before, after)
    if "folder" in (before.kind, after.kind) and {before.kind, after.kind} <= {"folder", "absent"}:
        note = "folder" if before.kind != after.kind else _mode_note(before, after)
        return FileDiff("", note=note)
    texts = [_text_of(state, data) for state, data in ((before, old), (after, new))]
    why = next((text.why for text in texts if text.why), "")
    a, b = (diff_name(side, printable(name)) for side in "ab")
    old_name = "/dev/null" if before.kind == "absent" else a
    new_name = "/dev/null" if after.kind == "absent" else b
    title = f"diff --git {a} {b}\n{head}"
    if why:
        return FileDiff(f"{title}Files {old_name} and {new_name} differ\n", None, None, why)
    lines = hunks_of(texts[0].lines, texts[1].lines)
    added = sum(1 for line in lines if line.startswith("+"))
    removed = sum(1 for line in lines if line.startswith("-"))
    body = "".join(f"{line}\n" for line in [f"--- {old_name}", f"+++ {new_name}", *lines])
    starts = [at for at, line in enumerate(lines) if line.startswith("@@")]
    hunks = tuple(tuple(lines[a:b]) for a, b in pairwise([*starts, len(lines)]))
    text = title + (body if lines else "")
    return FileDiff(text, added, removed, _mode_note(before, after), hunks)


def _headers(before: PathState, after: PathState) -> str:
    if before.kind == "absent":
        return f"new file mode {_mode(after)}\n"
    if after.kind == "absent":
        return f"deleted file mode {_mode(before)}\n"
    if _mode(before) != _mode(after):
        return f"old mode {_mode(before)}\nnew mode {_mode(after)}\n"
    return ""


def _mode(state: PathState) -> str:
    return _KINDS.get(state.kind) or f"{0o40000 if state.kind == 'folder' else 0o100000:o}"[:-3] + (
        f"{state.mode & 0o777:03o}"
    )


def _mode_note(before: PathState, after: PathState) -> str:
    if before.kind == after.kind and before.mode != after.mode:
        return f"mode {before.mode:o} -> {after.mode:o}"
    if "absent" not in (before.kind, after.kind) and before.kind != after.kind:
        return f"a {before.kind} became a {after.kind}"
    return ""


@dataclass(frozen=True, slots=True)
class _DiffedText:
    lines: list[str]
    why: str = ""


def _text_of(state: PathState, data: bytes | None) -> _DiffedText:
    if state.kind == "absent":
        return _DiffedText([])
    if state.kind == "link":
        return _DiffedText([printable(state.target) + _NO_END])
    if state.kind != "file":
        return _DiffedText([], f"a {state.kind}" if state.kind == "folder" else "no regular file")
    if data is None:
        return _DiffedText([], state.why or "its content is not kept")
    if len(data) > _MOST_SHOWN:
        return _DiffedText([], f"{len(data):,} bytes, too large to compare")
    if b"\0" in data:
        return _DiffedText([], "binary")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return _DiffedText([], "binary, or text that is not UTF-8")
    if lines[-1]:
        lines[-1] += _NO_END
    else:
        lines.pop()
    return _DiffedText(lines)
