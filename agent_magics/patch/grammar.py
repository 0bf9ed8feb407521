"""Parses the patch format, and defines its grammar for the provider.

Law: the first characters of a line alone determine its meaning, never its neighbours, and a
carriage return at its end is ignored (line breaks belong to the file, not to the patch).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from agent_magics.protocol.errors import RespondToModel

PATCH_GRAMMAR = r"""
start: "*** Begin Patch\n" (add | delete | update)+ "*** End Patch" "\n"?
add: "*** Add File: " REST ADDED*
delete: "*** Delete File: " REST
update: "*** Update File: " REST (body | "*** Move to: " REST body?)
body: (lines | chunk) chunk*
chunk: ANCHOR+ lines
lines: LINE+ "*** End of File\n"?
REST: /[^\n]+\n/
ADDED: /\+[^\n]*\n/
ANCHOR: /@@( [^\n]+)?\n/
LINE: /[-+ ][^\n]*\n/
""".lstrip()

BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File:", "*** Delete File:", "*** Update File:"
_MOVE, _END_OF_FILE = "*** Move to:", "*** End of File"
_HEADERS = "'*** Add File: PATH', '*** Delete File: PATH' or '*** Update File: PATH'"

_HEREDOC = re.compile(r"""\s*(?:apply_?patch\s*)?<<-?\s*(['"]?)(\w+)\1\s*""")
# As `diff -u` writes; its line numbers are not used as anchors, since models count lines badly.
_RANGE = re.compile(r"@@ -\d+(,\d+)? \+\d+(,\d+)? @@")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One change of a file.

    Attributes:
        lines: (sign, text) pairs; the sign is " " (context), "-" (removed) or "+" (added).
        anchors: lines of the file to find first, each below the one before.
        at_end: whether the chunk must end at the end of the file.
        line: the line of the patch at which it starts, from 1.
        near: its starting line in the file according to the patch, from 0; None if not given.
        asked_as: its name in messages, if it is not part of a patch.
    """

    lines: tuple[tuple[str, str], ...]
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    line: int = 0
    near: int | None = None
    asked_as: str = ""

    @property
    def old(self) -> tuple[str, ...]:
        """The lines that the file must contain: context and removed ones."""
        return tuple(text for sign, text in self.lines if sign != "+")

    @property
    def new(self) -> tuple[str, ...]:
        """The lines afterwards: context and added ones."""
        return tuple(text for sign, text in self.lines if sign != "-")


@dataclass(frozen=True, slots=True)
class AddFile:
    """Writes a file with these lines, creating or replacing it.

    Attributes:
        terminated: whether the last line has a line break; in a patch always True.
    """

    path: str
    lines: tuple[str, ...]
    line: int = 0
    terminated: bool = True


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Removes a file, which must contain exactly `lines` if they are given."""

    path: str
    line: int = 0
    lines: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class UpdateFile:
    """Changes parts of a file, moves it, or both.

    Attributes:
        open_end: whether the new last line has no line break; None adds one to a changed last line.
    """

    path: str
    chunks: tuple[Chunk, ...] = ()
    move_to: str | None = None
    line: int = 0
    open_end: bool | None = None


FileOperation: TypeAlias = AddFile | DeleteFile | UpdateFile


def parse_patch(text: str) -> tuple[FileOperation, ...]:
    """Parse a patch; a heredoc around it (``apply_patch <<'EOF'``) is removed.

    Raises:
        RespondToModel: the text is not a patch; the message names the line and the reason.
    """
    lines = _without_margin([line.removesuffix("\r") for line in text.split("\n")])
    check_characters(lines)
    at, stop = _body(lines)
    operations: list[FileOperation] = []
    while at < stop:
        if not lines[at].strip():
            at += 1
            continue
        operation, at = _read_operation(lines, at, stop)
        operations.append(operation)
    if not operations:
        fail_at(at, f"the patch is empty; between its first and last line it needs {_HEADERS}")
    return tuple(operations)


def _without_margin(lines: list[str]) -> list[str]:
    """Remove the common indentation of a patch."""
    filled = [line for line in lines if line.strip()]
    margin = filled[0][: -len(filled[0].lstrip())] if filled else ""
    if not (margin and all(line.startswith(margin) for line in filled)):
        return lines
    return [line.removeprefix(margin) for line in lines]


def fail_at(at: int, reason: str) -> NoReturn:
    """Refuse the patch because of its line `at`, counted from 0.

    Raises:
        RespondToModel: always.
    """
    raise RespondToModel(f"The patch was not applied: line {at + 1} of the patch: {reason}.")


def check_characters(lines: Sequence[str]) -> None:
    """Refuse characters that no UTF-8 text file can contain.

    Raises:
        RespondToModel: a line contains one.
    """
    for at, line in enumerate(lines):
        if "\0" in line:
            fail_at(at, "it holds a NUL character, and only text can be patched")
        if not line.isascii() and any("\ud800" <= character <= "\udfff" for character in line):
            fail_at(at, "it holds half of a surrogate pair, which no text file can hold")


def _body(lines: Sequence[str]) -> tuple[int, int]:
    """Return where the operations start and stop, inside Begin and End and inside a heredoc."""
    filled = [at for at, line in enumerate(lines) if line.strip()]
    if not filled:
        fail_at(0, f"the patch is empty; its first line must be '{BEGIN}'")
    heredoc = _HEREDOC.fullmatch(lines[filled[0]])
    if heredoc and len(filled) > 1 and lines[filled[-1]].strip() == heredoc[2]:
        filled = filled[1:-1] or filled
    first, last = filled[0], filled[-1]
    if lines[first].strip() != BEGIN:
        fail_at(first, f"the first line must be '{BEGIN}', not {shortened(lines[first])}")
    if lines[last].strip() != _END:
        end = next((at for at in filled if lines[at].rstrip() == _END), None)
        if end is not None:
            after = next(at for at in filled if at > end)
            fail_at(after, f"nothing may follow '{_END}', but there is {shortened(lines[after])}")
        fail_at(last, f"the last line must be '{_END}', not {shortened(lines[last])}")
    return first + 1, last


def shortened(line: str) -> str:
    """Return a line, shortened and quoted, for a message."""
    return repr(line if len(line) <= 80 else line[:77] + "...")


def _read_operation(lines: Sequence[str], at: int, stop: int) -> tuple[FileOperation, int]:
    for header, read in ((_ADD, _read_add), (_DELETE, _read_delete), (_UPDATE, _read_update)):
        if lines[at].lstrip().startswith(header):
            return read(_path_after(header, lines, at), lines, at, stop)
    if lines[at].startswith(_MOVE):
        fail_at(at, f"'{_MOVE}' must stand right below '{_UPDATE} PATH'")
    fail_at(at, f"{shortened(lines[at])} starts no operation; expected {_HEADERS}")


def _path_after(header: str, lines: Sequence[str], at: int) -> str:
    path = lines[at].lstrip()[len(header) :].strip()
    if not path:
        fail_at(at, f"'{header}' names no path")
    return path


def _read_add(path: str, lines: Sequence[str], at: int, stop: int) -> tuple[AddFile, int]:
    end = _next_header(lines, at + 1, stop, padded=True)
    for number in range(at + 1, end):
        if not lines[number].startswith("+"):
            reason = f"every line of an added file starts with '+', not {shortened(lines[number])}"
            fail_at(number, f"{reason}; to change an existing file use '{_UPDATE} {path}'")
    added = tuple(line[1:] for line in lines[at + 1 : end])
    return AddFile(path, added, at + 1), end


def _read_delete(path: str, lines: Sequence[str], at: int, stop: int) -> tuple[DeleteFile, int]:
    end = _next_header(lines, at + 1, stop, padded=True)
    if end > at + 1:
        fail_at(at + 1, f"'{_DELETE}' takes no lines, but there is {shortened(lines[at + 1])}")
    return DeleteFile(path, at + 1), end


def _read_update(path: str, lines: Sequence[str], at: int, stop: int) -> tuple[UpdateFile, int]:
    header, move_to, chunks = at, None, []
    at += 1
    if at < stop and lines[at].startswith(_MOVE):
        move_to = _path_after(_MOVE, lines, at)
        at += 1
    end = _next_header(lines, at, stop)
    while at < end:
        at = _skip_blanks_above_anchor(lines, at, end)
        chunk, at = _read_chunk(lines, at, end)
        chunks.append(chunk)
    if not chunks and move_to is None:
        fail_at(header, f"'{_UPDATE} {path}' says neither what to change nor where to move it")
    return UpdateFile(path, tuple(chunks), move_to, header + 1), end


def _next_header(lines: Sequence[str], at: int, stop: int, *, padded: bool = False) -> int:
    """Return the index after the current operation, without trailing blank lines.

    A blank line without a sign between two operations is a separator; inside a chunk it is
    blank context that lost its space. An indented header counts only if `padded`.
    """
    end = at
    while end < stop:
        line = lines[end].lstrip() if padded else lines[end]
        if line.startswith((_ADD, _DELETE, _UPDATE)):
            break
        end += 1
    while end > at and not lines[end - 1]:
        end -= 1
    return end


def _skip_blanks_above_anchor(lines: Sequence[str], at: int, end: int) -> int:
    filled = at
    while filled < end and not lines[filled]:
        filled += 1
    return filled if filled < end and lines[filled].startswith("@@") else at


def _read_chunk(lines: Sequence[str], at: int, end: int) -> tuple[Chunk, int]:
    first = at
    anchors, ranged = [], False
    while at < end and lines[at].startswith("@@"):
        ranged |= bool(_RANGE.match(lines[at]))
        if anchor := _anchor(lines, at):
            anchors.append(anchor)
        at += 1
    start = at
    while at < end and (not lines[at] or lines[at][0] in " +-"):
        at += 1
    body_end = at
    if at < end and lines[at].startswith("@@"):
        while body_end > start and not lines[body_end - 1]:
            body_end -= 1
    changes = tuple((line[:1] or " ", line[1:]) for line in lines[start:body_end])
    at_end = at < end and lines[at].rstrip() == _END_OF_FILE
    if at < end and not at_end and not lines[at].startswith("@@"):
        fail_at(at, _bad_line(lines[at]))
    if not changes:
        fail_at(first, "the chunk has no lines; write what to change below it")
    if ranged and not anchors and all(sign == "+" for sign, _ in changes):
        fail_at(first, "line numbers are not used; name a line of the file: '@@ that line'")
    return Chunk(changes, tuple(anchors), at_end, first + 1), at + at_end


def _anchor(lines: Sequence[str], at: int) -> str:
    """Return the line of the file that an ``@@`` line names, or ""."""
    line = lines[at]
    if _RANGE.match(line):
        return ""
    if line[2:3] not in ("", " "):
        fail_at(at, f"after '@@' comes a space and a line of the file, not {shortened(line)}")
    return line[3:].rstrip()


def _bad_line(line: str) -> str:
    if line.startswith(_MOVE):
        return f"'{_MOVE}' must stand right below '{_UPDATE} PATH'"
    if line.startswith("***"):
        return f"{shortened(line)} is no header; expected {_HEADERS} or '{_END_OF_FILE}'"
    return (
        f"{shortened(line)} must start with ' ' (a line that stays), '-' (removed) or '+' (added), "
        "or with '@@' to start a chunk"
    )
