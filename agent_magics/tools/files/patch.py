"""The `apply_patch` tool: changes several files in one step, all of them or none.

Law: only the very files are written that were named when the call was checked. What a path leads to
may change until the call runs, even by an earlier call of the same answer, so it is resolved again
before anything is read.
"""

import os
import stat
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.results.output_guard import require
from agent_magics.dispatch.tool import tool
from agent_magics.files.paths import entry_path, literal_path, resolve_path, shown_path, write_kind
from agent_magics.files.plain_files import stamp_of
from agent_magics.patch.files import is_read_only
from agent_magics.patch.grammar import PATCH_GRAMMAR, AddFile, DeleteFile, UpdateFile
from agent_magics.patch.plan import Operation, PatchResult, plan_patch, read_patch, touched_paths
from agent_magics.patch.replacement import read_replacement
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import PatchApplyBegin, PatchApplyEnd
from agent_magics.symbols.servers.edit_checks import EditWatch, watch_edit
from agent_magics.tools.files.access import judge_of

_CHECKED = "paths of patches as they were checked"
# The largest change shown in a question: lines and characters of its diff, bytes of a file.
_MOST_LINES, _MOST_CHARACTERS, _MOST_BYTES = 200, 20_000, 1_000_000


def assess_patch(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Return the approval actions of a patch, without reading any file.

    Returns:
        One write action for each path, the source of a move included.

    Raises:
        RespondToModel: the text is no patch, or the arguments fit no form of the call.
    """
    return assess_operations(_operations(**arguments), arguments, ctx)


def _by_place(
    operations: Sequence[Operation], places: Mapping[str, Path], cwd: Path
) -> tuple[tuple[Operation, ...], Callable[[str], Path]]:
    """Return the operations with resolved paths as names, and a function from name to path.

    A change through a link is thus reported for the file that the question named.
    """
    shown = {name: _named(path, name, cwd) for name, path in places.items()}
    found = []
    for each in operations:
        renamed = replace(each, path=shown[each.path])
        if isinstance(renamed, UpdateFile) and renamed.move_to is not None:
            renamed = replace(renamed, move_to=shown[renamed.move_to])
        found.append(renamed)
    return tuple(found), {shown[name]: path for name, path in places.items()}.__getitem__


def _named(path: Path, name: str, cwd: Path) -> str:
    plain = Path(os.path.normpath(literal_path(name, cwd)))
    return name if path == plain else shown_path(path, cwd)


def assess_operations(
    operations: Sequence[Operation], arguments: Mapping[str, Any], ctx: ToolContext
) -> list[Action]:
    """Return one approval action for each path that operations would write.

    A question about them shows the diff against the files as they are when it is asked.

    Args:
        operations: the patch's operations.
        arguments: the arguments of the call, which its fingerprint covers.
        ctx: the call.
    """
    links, whole = _links_of(operations), _whole_of(operations)
    names = touched_paths(operations)
    paths = {name: _place_of(name, ctx.cwd, links) for name in names}
    ctx.extra.setdefault(_CHECKED, {})[ctx.call_id] = paths
    show = partial(_diff_of, operations, paths, arguments, ctx)
    return [
        *_ruled_reads(names, paths, ctx),
        *(_action(name, paths[name], arguments, show, name in whole, ctx) for name in names),
    ]


def _links_of(operations: Sequence[Operation]) -> frozenset[str]:
    """Return the paths at which a link itself is meant rather than its target (delete and move)."""
    return frozenset(
        each.path
        for each in operations
        if isinstance(each, DeleteFile)
        or (isinstance(each, UpdateFile) and each.move_to is not None)
    )


def _whole_of(operations: Sequence[Operation]) -> frozenset[str]:
    """Return the paths of files that go with all that is in them, whatever that is."""
    goals = (getattr(each, "move_to", None) for each in operations)
    gone = (each.path for each in operations if isinstance(each, (AddFile, DeleteFile)))
    return frozenset(filter(None, (*goals, *gone)))


def _place_of(name: str, cwd: Path, links: Container[str]) -> Path:
    is_link = isinstance(name, str) and name in links  # a call by hand may give anything
    return entry_path(name, cwd) if is_link else resolve_path(name, cwd)


def _ruled_reads(
    names: Sequence[str], paths: Mapping[str, Path], ctx: ToolContext
) -> Iterator[Action]:
    """Yield read actions for files under read rules: whether a patch fits reveals their content."""
    judge = judge_of(ctx)
    for name in names:
        for path in dict.fromkeys((paths[name], literal_path(name, ctx.cwd))):
            if judge.ruled(str(path)):
                yield Action(ActionKind.READ, shown_path(path, ctx.cwd), subject=str(path))


def _diff_of(
    operations: Sequence[Operation],
    paths: Mapping[str, Path],
    arguments: Mapping[str, Any],
    ctx: ToolContext,
) -> str:
    """Return the change as a whole diff, or "" where the arguments should be shown instead.

    That is so for protected and unreadable files, for patches that do not fit, for long diffs, and
    for carriage returns, which a diff does not show.
    """
    if _has_carriage_return(arguments):
        return ""
    cwd, judge = ctx.cwd, judge_of(ctx)
    try:
        for name, path in paths.items():
            protected = judge.denied(path) or judge.denied(literal_path(name, cwd))
            if protected or (path.exists() and path.stat().st_size > _MOST_BYTES):
                return ""
        diff = plan_patch(*_by_place(operations, paths, cwd)).diff
    except (RespondToModel, OSError):
        return ""
    short = len(diff) <= _MOST_CHARACTERS and diff.count("\n") <= _MOST_LINES
    return diff if short else ""


def _has_carriage_return(value: Any) -> bool:
    if isinstance(value, str):
        return "\r" in value
    inner = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, (Mapping, list, tuple)) and any(map(_has_carriage_return, inner))


def _operations(
    patch: str = "", file_path: str = "", original_content: str = "", updated_content: str = ""
) -> tuple[Operation, ...]:
    """Parse the arguments of either form (a patch, or one file's change) into operations."""
    require(str, patch=patch)
    contents = bool(original_content or updated_content)
    if bool(patch) == bool(file_path) or (patch and contents):
        raise RespondToModel(
            "apply_patch takes either patch alone, or file_path with original_content and "
            "updated_content; send one of the two."
        )
    if patch:
        return read_patch(patch)
    return (read_replacement(file_path, original_content, updated_content),)


def _action(
    name: str,
    path: Path,
    arguments: Mapping[str, Any],
    show: Callable[[], str],
    is_whole: bool,
    ctx: ToolContext,
) -> Action:
    status = _status(path)
    read_only = ctx.config.sandbox == SandboxPolicy.READ_ONLY
    # As written: a link named .git is git's own folder, wherever it leads.
    written, follow = literal_path(name, ctx.cwd), not path.is_symlink()
    allowed, reason = write_kind(written, ctx.config.roots, read_only, follow=follow)
    # And what will be opened: a link may have led elsewhere when that was found out.
    if allowed and path != written:
        allowed, reason = write_kind(path, ctx.config.roots, read_only, follow=follow)
    if read_only:
        reason = "the sandbox policy is read-only"
    elif allowed and status is not None and is_read_only(status):
        mode = stat.S_IMODE(status.st_mode)
        allowed, reason = False, f"protected: it is read-only (mode {mode:04o})"
    kind = ActionKind.WRITE_INSIDE if allowed else ActionKind.WRITE_OUTSIDE
    # The whole patch is part of it: "always" is for this text in this place, not for the file.
    fingerprint = fingerprint_of(ctx.name, dict(arguments), str(path))
    # The approval is for what goes as the person saw it; a change of some lines keeps all others.
    identity = fingerprint_of(fingerprint, status and stamp_of(status)) if is_whole else ""
    return Action(
        *(kind, shown_path(path, ctx.cwd), reason, fingerprint, identity, str(path), str(written)),
        family=str(path) if allowed else "",
        show=show,
    )


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _place(name: str, ctx: ToolContext, links: Container[str]) -> Path:
    """Resolve `name`, checking that it leads where it did when the call was checked."""
    path = ctx.validate_path(name, "write")
    if name in links:
        path = entry_path(name, ctx.cwd)
    checked = ctx.extra.get(_CHECKED, {}).get(ctx.call_id)
    # Without a check of its own it is part of another tool's call, and `validate_path` judges.
    if checked is not None and checked.get(name) != path:
        raise RespondToModel(
            f"The patch was not applied: {name} leads to {shown_path(path, ctx.cwd)} now and did "
            "not when this call was checked. Call again, so that it is checked anew."
        )
    return path


@tool(mutating=True, parallel=False, assess=assess_patch, freeform=("lark", PATCH_GRAMMAR))
def apply_patch(
    patch: str = "",
    file_path: str = "",
    original_content: str = "",
    updated_content: str = "",
    *,
    ctx: ToolContext | None = None,
) -> PatchResult:
    """Change, add, delete and move text files: all of a patch or nothing.

    *** Begin Patch
    *** Update File: src/app.py
    @@ def greet(name):
    -    print("Hi")
    +    print(f"Hi {name}")
         return True
    *** Add File: notes.txt
    +first line
    *** Delete File: old.txt
    *** End Patch

    Lines that stay start with a space. Give about three around a change; where those stand several
    times in the file, put "@@ " and the class, def or heading above them in front (several such
    lines: the outer first). "*** Move to: PATH" below "*** Update File" moves the file; "*** End of
    File" after a chunk: it ends where the file ends.

    Args:
        patch: the patch, from "*** Begin Patch" to "*** End Patch", or a unified diff as git
            writes it; the other three stay empty.
        file_path: instead of a patch, the one file to change.
        original_content: the file's whole text, or a part that stands in it exactly once; empty
            for a new file.
        updated_content: what comes in its place.

    Returns:
        The files that were changed, and what did not fit exactly.

    Raises:
        RespondToModel: the patch does not fit; nothing was changed.
    """
    return apply_operations(_operations(patch, file_path, original_content, updated_content), ctx)


def apply_operations(operations: Sequence[Operation], ctx: ToolContext | None) -> PatchResult:
    """Change all files that `operations` name, or none.

    Args:
        operations: the patch's operations.
        ctx: the call; None for one made by hand.

    Raises:
        RespondToModel: something does not fit; nothing was changed.
    """
    names, links = touched_paths(operations), _links_of(operations)
    if ctx is None:
        cwd = Path.cwd()
        places = {name: _place_of(name, cwd, links) for name in names}
        return plan_patch(*_by_place(operations, places, cwd)).apply()
    places = {name: _place(name, ctx, links) for name in names}
    plan = plan_patch(*_by_place(operations, places, ctx.cwd), judge_of(ctx))
    if ctx.cancelled.is_set():
        raise RespondToModel("The patch was not applied: the turn was interrupted.")
    check = _error_check(plan.places, ctx)
    ctx.emit(PatchApplyBegin, paths=plan.paths)
    tracker = ctx.diff_tracker
    try:
        with nullcontext() if tracker is None else tracker.writing(plan.places):
            result = plan.apply()
    except BaseException:
        ctx.emit(PatchApplyEnd, success=False)
        raise
    ctx.emit(PatchApplyEnd, success=True, diff=result.diff)
    errors = "" if check is None else check.finish(ctx.cwd, ctx.turn.tell_later)
    return replace(result, summary=f"{result.summary}{errors}\n") if errors else result


def _error_check(paths: Sequence[Path], ctx: ToolContext) -> EditWatch | None:
    """Return what finds the errors that an edit brings; None where that is off or not possible."""
    return watch_edit(ctx.turn.symbols, paths) if ctx.config.check_edits else None
