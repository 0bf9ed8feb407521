"""The `apply_patch` tool: several files changed in one step, all of them or none.

Law: only the very files are written that were named when the call was checked. What a path leads to
may change until the call runs, even by an earlier call of the same answer, so it is looked at again
before anything is read.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from agent_magics.backends.patch import (
    Operation,
    PatchResult,
    plan_patch,
    read_patch,
    read_replacement,
    touched_paths,
)
from agent_magics.backends.patch_grammar import PATCH_GRAMMAR
from agent_magics.backends.paths import (
    is_denied_read,
    literal_path,
    resolve_path,
    shown_path,
    write_kind,
)
from agent_magics.dispatch.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.tool import tool
from agent_magics.protocol.config import SandboxPolicy
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import PatchApplyBegin, PatchApplyEnd

_CHECKED = "paths of patches as they were checked"
# A change that is read in a question: lines and characters of its diff, bytes of each file.
_MOST_LINES, _MOST_CHARACTERS, _MOST_BYTES = 200, 20_000, 1_000_000


def assess_patch(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Say which files a patch would write, without reading any of them.

    Returns:
        One action for each path, the source of a move included.

    Raises:
        RespondToModel: the text is no patch, or the arguments are of no one form.
    """
    return assess_operations(_operations(**arguments), arguments, ctx)


def assess_operations(
    operations: Sequence[Operation], arguments: Mapping[str, Any], ctx: ToolContext
) -> list[Action]:
    """Return one action for each path that a call with these `arguments` would write.

    A question about them shows the diff against the files as they are when it is asked.
    """
    names = touched_paths(operations)
    paths = {name: resolve_path(name, ctx.cwd) for name in names}
    ctx.extra.setdefault(_CHECKED, {})[ctx.call_id] = paths
    show = partial(_diff_of, operations, paths, arguments, ctx.cwd)
    return [_action(name, paths[name], arguments, show, ctx) for name in names]


def _diff_of(
    operations: Sequence[Operation],
    paths: Mapping[str, Path],
    arguments: Mapping[str, Any],
    cwd: Path,
) -> str:
    """Return the change as a diff, whole; "" where it is the arguments that should be read.

    That is so of protected and unreadable files, of what does not fit and of long diffs, and of
    carriage returns, which a diff does not show.
    """
    if any("\r" in text for text in arguments.values() if isinstance(text, str)):
        return ""
    try:
        for name, path in paths.items():
            protected = is_denied_read(path) or is_denied_read(literal_path(name, cwd))
            if protected or (path.exists() and path.stat().st_size > _MOST_BYTES):
                return ""
        diff = plan_patch(operations, paths.__getitem__).diff
    except (RespondToModel, OSError):
        return ""
    short = len(diff) <= _MOST_CHARACTERS and diff.count("\n") <= _MOST_LINES
    return diff if short else ""


def _operations(
    patch: str = "", file_path: str = "", original_content: str = "", updated_content: str = ""
) -> tuple[Operation, ...]:
    """Return what either form of the arguments asks for."""
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
    ctx: ToolContext,
) -> Action:
    read_only = ctx.config.sandbox == SandboxPolicy.READ_ONLY
    # As written: a link named .git is git's own folder, wherever it leads.
    written = literal_path(name, ctx.cwd)
    allowed, reason = write_kind(written, ctx.config.roots, read_only)
    if allowed:  # and what will be opened: a link may have led elsewhere when that was found out
        allowed, reason = write_kind(path, ctx.config.roots, read_only)
    if read_only:
        reason = "the sandbox policy is read-only"
    kind = ActionKind.WRITE_INSIDE if allowed else ActionKind.WRITE_OUTSIDE
    # The whole patch is part of it: "always" is for this text in this place, not for the file.
    fingerprint = fingerprint_of(ctx.name, dict(arguments), str(path))
    return Action(kind, shown_path(path, ctx.cwd), reason, fingerprint, show=show)


def _place(name: str, ctx: ToolContext) -> Path:
    """Return where `name` leads, if it still leads where it did when the call was checked."""
    path = ctx.validate_path(name, "write")
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
    """Change, add, delete and move text files; either the whole patch is applied or nothing.

    A patch looks like this:

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

    In an update, lines that stay start with a space, removed ones with "-", added ones with "+".
    Give about three lines around a change. Where those stand several times in the file, put
    "@@ " and the class, def or heading above them in front; several such lines go from the outer
    to the inner one. "*** Move to: PATH" below the "*** Update File" line moves the file, and
    "*** End of File" after a chunk says that it ends where the file ends.

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
    """Change all files that `operations` name, or none; None for `ctx` is a call by hand.

    Raises:
        RespondToModel: something does not fit; nothing was changed.
    """
    if ctx is None:
        return plan_patch(operations, partial(resolve_path, cwd=Path.cwd())).apply()
    plan = plan_patch(operations, partial(_place, ctx=ctx))
    if ctx.cancelled.is_set():
        raise RespondToModel("The patch was not applied: the turn was interrupted.")
    ctx.emit(PatchApplyBegin, paths=plan.paths)
    tracker = ctx.diff_tracker
    try:
        with nullcontext() if tracker is None else tracker.writing(plan.places):
            result = plan.apply()
    except BaseException:
        ctx.emit(PatchApplyEnd, success=False)
        raise
    ctx.emit(PatchApplyEnd, success=True, diff=result.diff)
    return result
