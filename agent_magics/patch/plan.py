"""Applies patches atomically: computes every new file before writing the first."""

import difflib
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from agent_magics.files.paths import printable
from agent_magics.patch.diff import diff_of_new, diff_of_removed, unified_diff
from agent_magics.patch.files import (
    FileState,
    FileWrite,
    TextFile,
    is_read_only,
    read_link,
    read_state,
    write_all,
)
from agent_magics.patch.grammar import (
    BEGIN,
    AddFile,
    DeleteFile,
    FileOperation,
    UpdateFile,
    parse_patch,
)
from agent_magics.patch.match import Edit, match_chunks
from agent_magics.patch.python_syntax import why_unreadable
from agent_magics.patch.replacement import (
    ReplaceText,
    differences,
    replace_text,
)
from agent_magics.patch.unified import is_unified, parse_unified
from agent_magics.protocol.errors import RespondToModel, full_message
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import number_of

Operation: TypeAlias = FileOperation | ReplaceText
Resolve = Callable[[str], Path]

_MOST_NOTES = 20


def _nothing(path: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class FileChange:
    """The effect of one operation.

    Attributes:
        letter: A (new), M (changed or moved), R (replaced) or D (removed).
        name: the path to list.
        writes: one write, two for a move.
        replaced: number of lines of the replaced file, for R.
        diff: unified diff, for people.
        notes: remarks for the model.
    """

    letter: str
    name: str
    writes: tuple[FileWrite, ...]
    diff: str
    replaced: int = 0
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The line that lists this change."""
        replaced = f" (replaced {number_of(self.replaced, 'line')})" if self.letter == "R" else ""
        return f"{self.letter} {printable(str(self.name))}{replaced}"


@dataclass(frozen=True, slots=True)
class PatchResult:
    """The result of an applied patch; `paths` are as the patch named them."""

    summary: str
    diff: str
    paths: tuple[str, ...]

    def __repr__(self) -> str:
        return self.summary

    def to_output(self, budget: int) -> ToolOutput:
        """Return the summary, truncated to `budget` characters, for the model; the diff for
        people.
        """
        content = self.summary
        if len(content) > budget:
            content = f"{content[:budget]}\n({len(content) - budget} more characters)"
        return ToolOutput(content, details={"diff": self.diff}, value=self)


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """The new content of every file in a patch, before anything is written."""

    changes: tuple[FileChange, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that is written or removed, as the patch named it."""
        return tuple(write.name for change in self.changes for write in change.writes)

    @property
    def places(self) -> tuple[Path, ...]:
        """The resolved paths."""
        return tuple(write.path for change in self.changes for write in change.writes)

    @property
    def diff(self) -> str:
        """All changes as one unified diff."""
        return "".join(change.diff for change in self.changes)

    @property
    def summary(self) -> str:
        """Text for the model: the files, then the notes about them."""
        listed = sorted(self.changes, key=lambda change: "AMRD".index(change.letter))
        lines = ["Success. Updated the following files:", *(change.summary for change in listed)]
        notes = [*self.notes, *(note for change in self.changes for note in change.notes)]
        lines += notes[:_MOST_NOTES]
        if len(notes) > _MOST_NOTES:
            lines.append(f"({len(notes) - _MOST_NOTES} more notes)")
        return "\n".join(lines) + "\n"

    def apply(self) -> PatchResult:
        """Write all files, or none.

        Raises:
            RespondToModel: a file changed since it was read, or could not be written.
        """
        write_all([write for change in self.changes for write in change.writes])
        return PatchResult(self.summary, self.diff, self.paths)


@lru_cache(maxsize=1)  # a call's patch is read when it is judged, and when it runs
def read_patch(text: str) -> tuple[FileOperation, ...]:
    """Parse a patch in our own format, or a unified diff.

    Raises:
        RespondToModel: the text is neither; the message names the line and the reason.
    """
    if BEGIN not in text and is_unified(text):
        return parse_unified(text)
    return parse_patch(text)


def touched_paths(operations: Sequence[Operation]) -> tuple[str, ...]:
    """Return every path that `operations` would write or remove, as the patch names it."""
    return tuple(path for _, path in _numbered_paths(operations))


def plan_patch(
    operations: Sequence[Operation], resolve: Resolve, protects: Callable[[str], str] = _nothing
) -> PatchPlan:
    """Read every file and compute its new content.

    Args:
        operations: from `parse_patch`, or a replacement.
        resolve: turns a path as the patch names it into a real, absolute one, or raises
            RespondToModel where access is denied.
        protects: returns why messages must not show a file's content or name, or "".

    Raises:
        RespondToModel: an operation cannot be applied; the message lists all of them.
    """
    planner = _Planner(operations, resolve, protects)
    changes: list[FileChange] = []
    notes: list[str] = []
    problems: list[str] = []
    for operation in operations:
        try:
            change = planner.plan(operation)
        except RespondToModel as problem:
            problems.append(full_message(problem))
            continue
        if change is None:
            notes.append(f"{operation.path}: unchanged, it is already as the patch wants it")
        else:
            notes += _read_only_notes(change)
            changes.append(change)
    if problems:
        listed = "\n".join(problems)
        raise RespondToModel(f"The patch was not applied, and nothing was changed.\n{listed}")
    return PatchPlan(tuple(changes), tuple(notes))


def _numbered_paths(operations: Sequence[Operation]) -> Iterator[tuple[int, str]]:
    for operation in operations:
        yield operation.line, operation.path
        if isinstance(operation, UpdateFile) and operation.move_to is not None:
            yield operation.line + 1, operation.move_to


class _Planner:
    """Plans the operations of one patch against the current files."""

    def __init__(
        self, operations: Sequence[Operation], resolve: Resolve, protects: Callable[[str], str]
    ) -> None:
        self._protects = protects
        self._real = {path: resolve(path) for path in touched_paths(operations)}
        self._check_moves(operations)
        self._check_paths_differ(operations)

    def _check_moves(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if not isinstance(operation, UpdateFile) or operation.move_to is None:
                continue
            source, target = self._real[operation.path], self._real[operation.move_to]
            # On a case-insensitive file system a.txt and A.txt are the same file.
            if source == target or _same_file(source, target):
                raise RespondToModel(
                    f"The patch was not applied: line {operation.line + 1} of the patch: "
                    f"{operation.path} would be moved onto itself; leave out '*** Move to:'."
                )

    def _check_paths_differ(self, operations: Sequence[Operation]) -> None:
        first: dict[Path, tuple[int, str]] = {}
        for line, path in _numbered_paths(operations):
            earlier = first.setdefault(self._real[path], (line, path))
            if earlier != (line, path):
                raise RespondToModel(
                    f"The patch was not applied: line {line} of the patch: {path} is already the "
                    f"subject of line {earlier[0]} ({earlier[1]}); put all changes of one file "
                    "into one operation."
                )

    def plan(self, operation: Operation) -> FileChange | None:
        """Return the effect of `operation`; None if the file is already as wanted.

        Raises:
            RespondToModel: it cannot be applied.
        """
        if isinstance(operation, AddFile):
            return self._plan_add(operation)
        if isinstance(operation, DeleteFile):
            return self._plan_delete(operation)
        if isinstance(operation, ReplaceText) and not operation.old:
            name, path = operation.path, self._real[operation.path]
            if read_state(name, path) is None:
                return self._plan_add(operation.as_file)
        return self._plan_update(operation)

    def _plan_add(self, operation: AddFile) -> FileChange | None:
        name, path = operation.path, self._real[operation.path]
        before = read_state(name, path)
        if before is None:
            after = TextFile(operation.lines, operation.terminated)
            write = FileWrite(name, path, None, after.encode())
            return FileChange("A", name, (write,), diff_of_new(name, after))
        old = before.text
        edits, after = _rewritten(old, operation)
        change = _rewriting(name, path, before, after, edits)
        return change and replace(change, letter="R", replaced=len(old.raw))

    def _plan_delete(self, operation: DeleteFile) -> FileChange:
        name, path = operation.path, self._real[operation.path]
        link = read_link(name, path)
        before = link or self._must_exist(name, path, "removed")
        if operation.lines is not None and list(operation.lines) != before.text.lines:
            raise RespondToModel(
                f"{name} cannot be removed: it does not hold what the patch says; read it again"
            )
        write = FileWrite(name, path, before, None, is_link=link is not None)
        return FileChange("D", name, (write,), diff_of_removed(name, before.text))

    def _plan_update(self, operation: UpdateFile | ReplaceText) -> FileChange | None:
        name, path = operation.path, self._real[operation.path]
        if isinstance(operation, UpdateFile) and (link := read_link(name, path)):
            return self._plan_move_of_link(operation, link)
        before = self._must_exist(name, path, "updated")
        old = before.text
        try:
            edits, found, terminated = _edits_of(operation, old)
        except RespondToModel as problem:
            reason = self._protects(str(path))
            why = f"the patch does not fit; its lines are not shown: {reason}"
            raise RespondToModel(f"{name}: {why if reason else full_message(problem)}") from None
        edits = _complete_last_line(old, edits)
        after = old.edited(edits)
        if terminated is not None:
            after = _ended(after, terminated, edits)
        broken = why_unreadable(path.name, old, after)
        if broken and found:
            how = "; ".join(found)
            raise RespondToModel(f"{name}: {how}, and then {broken}; indent the patch as the file")
        notes = tuple(f"{name} {note}" for note in (*found, *([broken] if broken else [])))
        if isinstance(operation, UpdateFile) and operation.move_to is not None:
            target, is_open = operation.move_to, not after.terminated
            diff = unified_diff(name, target, before.text, edits, open_end=is_open) if edits else ""
            return self._plan_move(operation, before, after.encode(), diff, notes)
        change = _rewriting(name, path, before, after, edits)
        return change and replace(change, notes=notes)

    def _plan_move_of_link(self, operation: UpdateFile, link: FileState) -> FileChange:
        if operation.chunks:
            raise RespondToModel(
                f"{operation.path} is a symbolic link: move it, or change the file that it leads "
                "to, in an operation of its own"
            )
        return self._plan_move(operation, link, os.fsencode(link.text.raw[0]), is_link=True)

    def _plan_move(
        self,
        operation: UpdateFile,
        before: FileState,
        after: bytes,
        diff: str = "",
        notes: tuple[str, ...] = (),
        *,
        is_link: bool = False,
    ) -> FileChange:
        source, target = operation.path, operation.move_to or ""
        replaced = read_state(target, self._real[target])
        writes = (
            FileWrite(target, self._real[target], replaced, after, before, is_link=is_link),
            FileWrite(source, self._real[source], before, None, is_link=is_link),
        )
        diff = f"rename from {source}\nrename to {target}\n{diff}"
        letter, lines = ("R", len(replaced.text.raw)) if replaced else ("M", 0)
        return FileChange(letter, target, writes, diff, lines, notes)

    def _must_exist(self, name: str, path: Path, done: str) -> FileState:
        state = read_state(name, path)
        if state is None:
            beside = [n for n in _names_beside(path) if not self._protects(str(path.parent / n))]
            near = difflib.get_close_matches(path.name, beside, n=3)
            hint = f"; beside it there is {', '.join(near)}" if near else ""
            raise RespondToModel(f"{name} cannot be {done}: there is no such file{hint}")
        return state


def _edits_of(
    operation: UpdateFile | ReplaceText, text: TextFile
) -> tuple[list[Edit], Sequence[str], bool | None]:
    """Return the edits, notes about inexact matches, and whether the last line shall have a line
    break.
    """
    if isinstance(operation, ReplaceText):
        found = replace_text(text, operation)
        return found.edits, found.notes, found.terminated
    edits, notes = match_chunks(text.lines, operation.chunks)
    return edits, notes, False if operation.open_end else None


def _ended(text: TextFile, terminated: bool, edits: Sequence[Edit]) -> TextFile:
    """Return `text`, which `edits` have made, with or without a line break at its end."""
    if not text.raw or text.terminated == terminated:
        return text
    last = text.raw[-1]
    if not terminated and not (edits and edits[-1].lines[-1:] == (last,)):
        last = last.removesuffix("\r")  # which belongs to the break
    return replace(text, raw=(*text.raw[:-1], last), terminated=terminated)


def _read_only_notes(change: FileChange) -> Iterator[str]:
    for write in change.writes:
        if write.before is not None and is_read_only(write.before.status):
            mode = stat.S_IMODE(write.before.status.st_mode)
            yield f"{write.name} was read-only (mode {mode:04o})"


def _rewriting(
    name: str, path: Path, before: FileState, after: TextFile, edits: Sequence[Edit]
) -> FileChange | None:
    """Return the change of a file's text; None where that stays as it is."""
    if after == before.text:
        return None
    write = FileWrite(name, path, before, after.encode(), before)
    diff = unified_diff(name, name, before.text, edits, open_end=not after.terminated)
    return FileChange("M", name, (write,), diff)


def _rewritten(old: TextFile, operation: AddFile) -> tuple[list[Edit], TextFile]:
    """Return the edits and the result of replacing an existing file; it keeps its kind of line
    breaks.
    """
    lines = TextFile(operation.lines, operation.terminated).lines
    lines[:1] = map(old.as_written, lines[:1])
    edits = _complete_last_line(old, differences(old.lines, lines))
    last = len(old.raw)
    reaches_end = bool(edits) and edits[-1].end == last
    if old.terminated != operation.terminated and not reaches_end:
        # The same last line, but with or without a line break.
        edits.append(Edit(last - 1, last, (old.lines[-1],)))
    elif reaches_end and not operation.terminated and not edits[-1].lines:
        # The end is removed: the line above it loses its line break.
        edits[-1] = Edit(edits[-1].start - 1, last, (lines[-1],))
    after = old.edited(edits)
    if after.terminated and not operation.terminated:
        after = replace(after, raw=(*after.raw[:-1], lines[-1]), terminated=False)
    return edits, after


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _names_beside(path: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in path.parent.iterdir())[:1000]
    except OSError:
        return []


def _complete_last_line(text: TextFile, edits: list[Edit]) -> list[Edit]:
    """Include an unterminated last line in the edit of lines added below it."""
    last = len(text.raw)
    at = next((n for n, edit in enumerate(edits) if edit.start == edit.end == last), None)
    if at is None or text.terminated or any(edit.end == last for edit in edits[:at]):
        return edits
    whole = Edit(last - 1, last, (text.lines[-1], *edits[at].lines))
    return [*edits[:at], whole, *edits[at + 1 :]]
