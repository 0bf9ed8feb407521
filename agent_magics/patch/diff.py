"""Formats the effect of a patch on files as a unified diff for people."""

from collections.abc import Iterator, Sequence

from agent_magics.files.paths import diff_name
from agent_magics.patch.files import TextFile
from agent_magics.patch.match import Edit

_CONTEXT = 3
_NO_END = "\\ No newline at end of file"


def diff_of_new(name: str, text: TextFile) -> str:
    """Return the diff of a created file."""
    lines = text.lines
    header = [f"@@ -0,0 +{_range(0, len(lines))} @@"] if lines else []
    signed = _signed("+", text, lines, 0, len(lines))
    return _headed("/dev/null", diff_name("b", name), header + signed)


def diff_of_removed(name: str, text: TextFile) -> str:
    """Return the diff of a removed file."""
    lines = text.lines
    header = [f"@@ -{_range(0, len(lines))} +0,0 @@"] if lines else []
    signed = _signed("-", text, lines, 0, len(lines))
    return _headed(diff_name("a", name), "/dev/null", header + signed)


def _headed(old_name: str, new_name: str, lines: Sequence[str]) -> str:
    return "\n".join([f"--- {old_name}", f"+++ {new_name}", *lines]) + "\n"


def unified_diff(
    old_name: str,
    new_name: str,
    text: TextFile,
    edits: Sequence[Edit],
    *,
    open_end: bool = False,
) -> str:
    """Return the unified diff of known edits; comparing the files again would be slow and
    ambiguous.

    Args:
        old_name: the file's path before.
        new_name: its path afterwards.
        text: the file before.
        edits: the edits, in order.
        open_end: whether the new last line has no line break.
    """
    lines = text.lines
    shown: list[str] = []
    shift = 0
    for group in _grouped(edits):
        first = max(0, group[0].start - _CONTEXT)
        stop = min(len(lines), group[-1].end + _CONTEXT)
        grown = sum(len(edit.lines) - (edit.end - edit.start) for edit in group)
        old_range = _range(first, stop - first)
        shown.append(f"@@ -{old_range} +{_range(first + shift, stop - first + grown)} @@")
        at = first
        for edit in group:
            shown += _signed(" ", text, lines, at, edit.start)
            shown += _signed("-", text, lines, edit.start, edit.end)
            shown += [f"+{line}" for line in edit.lines]
            if open_end and edit.lines and edit.end == len(lines):
                shown.append(_NO_END)
            at = edit.end
        shown += _signed(" ", text, lines, at, stop)
        shift += grown
    return _headed(diff_name("a", old_name), diff_name("b", new_name), shown)


def _grouped(edits: Sequence[Edit]) -> Iterator[list[Edit]]:
    """Yield groups of edits whose context would overlap."""
    group: list[Edit] = []
    for edit in edits:
        if group and edit.start - group[-1].end > 2 * _CONTEXT:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _range(first: int, length: int) -> str:
    # In a unified diff an empty range names the line above it.
    start = first + 1 if length else first
    return str(start) if length == 1 else f"{start},{length}"


def _signed(sign: str, text: TextFile, lines: Sequence[str], start: int, stop: int) -> list[str]:
    signed = [f"{sign}{line}" for line in lines[start:stop]]
    if signed and stop == len(lines) and not text.terminated:
        signed.append(_NO_END)
    return signed
