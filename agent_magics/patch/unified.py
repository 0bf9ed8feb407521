"""Parses unified diffs, as git and ``diff -u`` write them, into the operations of our own format.

Law: unsupported parts (a binary patch, a copy, a mode) are refused with their line, not ignored.
Line numbers only decide between equal matches, since handwritten ones are often wrong.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agent_magics.patch.grammar import (
    AddFile,
    Chunk,
    DeleteFile,
    FileOperation,
    UpdateFile,
    check_characters,
    fail_at,
    shortened,
)

_GIT = "diff --git "
_NOWHERE = "/dev/null"
_NO_END = "\\ "  # "\ No newline at end of file", in whatever language
_RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)")
_ESCAPED = dict(zip((b"n", b"t", b"r", b"a", b"b", b"f", b"v"), b"\n\t\r\a\b\f\v", strict=True))
_REFUSED = (
    ("old mode ", "changes of a file's mode are not made by patches; run chmod"),
    ("new mode ", "changes of a file's mode are not made by patches; run chmod"),
    ("copy from ", "files are not copied by patches; add the new one as a whole"),
    ("Binary files ", "only text can be patched"),
    ("GIT binary patch", "only text can be patched"),
)
_PLAIN_MODE = "100644"


@dataclass(slots=True)
class _FileHeader:
    """The lines above a file's hunks.

    Attributes:
        line: where it begins, from 1.
        old: the path before, "" for a new file.
        new: the path afterwards, "" for a removed file.
        is_git: whether git wrote it, whose paths begin with a/ and b/.
        renamed: whether the file is moved.
    """

    line: int
    old: str = ""
    new: str = ""
    is_git: bool = False
    renamed: bool = False


def is_unified(text: str) -> bool:
    """Tell whether a text contains a unified diff, perhaps after other text."""
    lines = text.split("\n")
    return any(_begins_file(lines, at) for at in range(len(lines)))


def parse_unified(text: str) -> tuple[FileOperation, ...]:
    """Parse a unified diff.

    Raises:
        RespondToModel: it is malformed or has unsupported parts; the message names the line.
    """
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    check_characters(lines)
    at = next(at for at in range(len(lines)) if _begins_file(lines, at))
    operations: list[FileOperation] = []
    while at < len(lines):
        if _begins_file(lines, at):
            operation, at = _read_file(lines, at)
            operations.append(operation)
        elif lines[at] == "-- ":  # the signature that `git format-patch` appends
            break
        elif lines[at].strip() and lines[at][0] in "+-@ ":
            fail_at(at, f"{shortened(lines[at])} belongs to no hunk; check the hunk above it")
        else:
            at += 1
    return tuple(operations)


def _begins_file(lines: Sequence[str], at: int) -> bool:
    if lines[at].startswith(_GIT):
        return True
    below = lines[at + 1] if at + 1 < len(lines) else ""
    return lines[at].startswith("--- ") and below.startswith("+++ ")


# -- one file ------------------------------------------------------------------------------------


def _read_file(lines: Sequence[str], at: int) -> tuple[FileOperation, int]:
    header, at = _read_header(lines, at)
    chunks: list[Chunk] = []
    marks: list[str] = []
    while at < len(lines) and lines[at].startswith("@@"):
        chunk, mark, at = _read_hunk(lines, at)
        chunks.append(chunk)
        marks += mark
    if not header.old:
        return _added(header, chunks, marks), at
    if not header.new:
        gone = tuple(text for chunk in chunks for text in chunk.old)
        return DeleteFile(header.old, header.line, gone), at
    moved = header.new if header.new != header.old and header.renamed else None
    if not chunks and moved is None:
        fail_at(header.line - 1, f"nothing is said of what to change in {header.new}")
    source = header.old if moved else header.new
    return UpdateFile(source, tuple(chunks), moved, header.line, _open_end(marks)), at


def _added(header: _FileHeader, chunks: Sequence[Chunk], marks: Sequence[str]) -> AddFile:
    if any(chunk.old for chunk in chunks):
        fail_at(header.line - 1, f"{header.new} is new, and yet lines of it are to stay or to go")
    added = tuple(text for chunk in chunks for text in chunk.new)
    return AddFile(header.new, added, header.line, terminated=not _open_end(marks))


def _open_end(marks: Sequence[str]) -> bool | None:
    """Tell from the marks of missing line breaks whether the new file ends without one; None if
    unmarked.
    """
    if not marks:
        return None
    return any(sign in "+ " for sign in marks)


def _read_header(lines: Sequence[str], at: int) -> tuple[_FileHeader, int]:
    header = _FileHeader(at + 1)
    if lines[at].startswith(_GIT):
        header.is_git = True
        header.old, header.new = _paths_of_git(lines, at)
        at += 1
        while at < len(lines) and not lines[at].startswith(("@@", _GIT, "--- ")):
            if not _read_extended(header, lines, at):
                break
            at += 1
    if at + 1 < len(lines) and lines[at].startswith("--- ") and lines[at + 1].startswith("+++ "):
        if not header.renamed:
            _read_names(header, lines, at)
        at += 2
    return header, at


def _read_extended(header: _FileHeader, lines: Sequence[str], at: int) -> bool:
    """Parse an extended header line of git; return False if it is none."""
    line = lines[at]
    for begin, reason in _REFUSED:
        if line.startswith(begin):
            fail_at(at, reason)
    if line.startswith("new file mode "):
        _check_mode(lines, at)
        header.old = ""
    elif line.startswith("deleted file mode "):
        header.new = ""
    elif line.startswith("rename from "):
        header.old, header.renamed = _unquoted(line.removeprefix("rename from ")), True
    elif line.startswith("rename to "):
        header.new = _unquoted(line.removeprefix("rename to "))
    else:
        return line.startswith(("index ", "similarity index ", "dissimilarity index "))
    return True


def _check_mode(lines: Sequence[str], at: int) -> None:
    mode = lines[at].rpartition(" ")[2]
    if mode != _PLAIN_MODE:
        fail_at(at, f"a new file of mode {mode} is not made by a patch, only plain ones are")


def _read_names(header: _FileHeader, lines: Sequence[str], at: int) -> None:
    old, new = (_unquoted(lines[at + n][4:].partition("\t")[0].rstrip()) for n in (0, 1))
    if header.is_git or (old.startswith("a/") and new.startswith("b/")) or _NOWHERE in (old, new):
        old, new = _without(old, "a/"), _without(new, "b/")
    header.old, header.new = ("" if name == _NOWHERE else name for name in (old, new))
    if not (header.old or header.new):
        fail_at(at, "both files are /dev/null")


def _paths_of_git(lines: Sequence[str], at: int) -> tuple[str, str]:
    """Return both paths of a ``diff --git`` line, which are equal without a rename."""
    rest = lines[at].removeprefix(_GIT).rstrip()
    if rest.startswith('"'):
        names = re.findall(r'"(?:[^"\\]|\\.)*"|\S+', rest)
        if len(names) == 2:
            return _without(_unquoted(names[0]), "a/"), _without(_unquoted(names[1]), "b/")
    middle = len(rest) // 2
    old, new = rest[:middle], rest[middle + 1 :]
    if _without(old, "a/") == _without(new, "b/"):
        return _without(old, "a/"), _without(new, "b/")
    # Two different names, which the lines below give.
    return "", ""


def _without(path: str, prefix: str) -> str:
    return path if path == _NOWHERE else path.removeprefix(prefix)


def _unquoted(path: str) -> str:
    """Decode a path that git has quoted because of special characters."""
    if not (len(path) > 1 and path[0] == path[-1] == '"'):
        return path

    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code, 8) & 0xFF if len(code) == 3 else _ESCAPED.get(code, ord(code))])

    return _ESCAPE.sub(plain, path[1:-1].encode()).decode("utf-8", "replace")


# -- one hunk ------------------------------------------------------------------------------------


def _read_hunk(lines: Sequence[str], at: int) -> tuple[Chunk, list[str], int]:
    """Return a hunk, the signs of its lines without line break, and the index after it."""
    found = _RANGE.match(lines[at])
    if found is None:
        fail_at(at, f"{shortened(lines[at])} gives no lines; a hunk begins with '@@ -1,3 +1,4 @@'")
    start, old, _, new = (1 if number is None else int(number) for number in found.groups())
    stop = _end_by_count(lines, at + 1, old, new)
    if stop is None:
        stop = _end_by_look(lines, at + 1)
    changes: list[tuple[str, str]] = []
    marks: list[str] = []
    for line in lines[at + 1 : stop]:
        if line.startswith(_NO_END):
            marks += [changes[-1][0]] if changes else []
        else:
            changes.append((line[:1] or " ", line[1:]))
    if not changes:
        fail_at(at, "the hunk has no lines; write what to change below it")
    near = start - 1 if old else start  # only additions, below line `start` of the old file
    # A line without line break is the last one of its file.
    return Chunk(tuple(changes), (), bool(marks), at + 1, max(0, near)), marks, stop


def _end_by_count(lines: Sequence[str], at: int, old: int, new: int) -> int | None:
    """Return where the hunk ends if its counts are right, else None."""
    while (old > 0 or new > 0) and at < len(lines):
        sign = lines[at][:1] or " "
        if sign not in " +-\\":
            return None
        old -= sign in " -"
        new -= sign in " +"
        at += 1
    if at < len(lines) and lines[at].startswith(_NO_END):
        at += 1
    ends = at >= len(lines) or lines[at][:1] in ("", "@") or not _is_change(lines, at)
    return at if old == new == 0 and ends else None


def _end_by_look(lines: Sequence[str], at: int) -> int:
    """Return the end of the lines that can belong to a hunk, without trailing blank ones."""
    start = at
    while at < len(lines) and (not lines[at] or _is_change(lines, at)):
        at += 1
    while at > start and not lines[at - 1]:
        at -= 1
    return at


def _is_change(lines: Sequence[str], at: int) -> bool:
    return lines[at][:1] in (" ", "+", "-", "\\") and not (
        _begins_file(lines, at) or lines[at] == "-- "
    )
