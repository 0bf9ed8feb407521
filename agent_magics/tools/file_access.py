"""What the tools that look at files share: which files they may see, and how results are told.

Law: a protected file is shown only if the question about this very file was asked for this very
call. What a path leads to may change between the question and the reading, even by an earlier call
of the same answer, so the opened file is judged again.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_magics.backends.paths import (
    is_denied_read,
    literal_path,
    printable,
    resolve_path,
    shown_path,
)
from agent_magics.backends.secret_places import is_second_name
from agent_magics.dispatch.actions import Action, ActionKind, fingerprint_of
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.handles import is_handle
from agent_magics.protocol.errors import RespondToModel

MOST_READ_BY_HAND = 10_000  # characters of a result's repr
FOR_NOTES = 400  # characters of a budget kept for what is told about the result
_MOST_NAMED = 120  # characters of the names of what was left out
_ASKED = "protected reads asked about"


def assess_read(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Say which path a call would read, and whether it is protected."""
    written = arguments.get("path", ".")
    # Not `ctx.validate_path`: before approval that refuses what the person is to be asked about.
    path = resolve_path(written, ctx.cwd)
    reason = is_denied_read(literal_path(written, ctx.cwd)) or is_denied_read(path)
    kind = ActionKind.READ_DENIED if reason else ActionKind.READ
    if reason:
        ctx.extra.setdefault(_ASKED, {})[ctx.call_id] = path
    fingerprint = fingerprint_of(ctx.name, dict(arguments), str(path))
    return [Action(kind, shown_path(path, ctx.cwd), reason, fingerprint)]


def place(path: str, ctx: ToolContext | None) -> tuple[Path, str]:
    """Return where `path` leads, and how to name it.

    Raises:
        RespondToModel: it may not be read.
    """
    if ctx is None:
        cwd = Path.cwd()
        resolved = resolve_path(path, cwd)
    else:
        cwd = ctx.cwd
        resolved = ctx.validate_path(path, "read")
        if is_handle(path):
            return resolved, path
    return resolved, shown_path(resolved, cwd)


def refuse_unasked(
    path: Path, shown: str, ctx: ToolContext | None, opened: os.stat_result | None = None
) -> str:
    """Return why `path` is protected, or "".

    Args:
        path: what is about to be read, or was opened.
        shown: how to name it.
        ctx: the call; None for one by hand, which may read all.
        opened: the state of the opened file.

    Raises:
        RespondToModel: it is protected, and nobody was asked about it for this call.
    """
    reason = "" if ctx is None else is_denied_read(path)
    if ctx is not None and not reason and opened is not None and is_second_name(opened):
        reason = "a second name of a protected file"
    if reason and ctx.extra.get(_ASKED, {}).get(ctx.call_id) != path:
        raise RespondToModel(
            f"{shown} is protected now ({reason}) and was not when this call was checked. "
            "Call again, so that the person can be asked."
        )
    return reason


def cancel_check(ctx: ToolContext | None) -> Callable[[], bool]:
    """Return what tells whether the call was interrupted."""
    return (lambda: False) if ctx is None else ctx.cancelled.is_set


def require_at_least(minimum: int, **values: int | None) -> None:
    """Refuse a number below `minimum`; None is no number.

    Raises:
        RespondToModel: one of them is smaller; the sentence names it.
    """
    for name, value in values.items():
        if value is not None and value < minimum:
            raise RespondToModel(f"{name} is {value}, but has to be at least {minimum}.")


def count_fitting(lines: Sequence[str], budget: int) -> int:
    """Return how many of `lines`, from the first, fit in `budget` characters; at least one."""
    used = 0
    for count, line in enumerate(lines):
        used += len(line) + 1
        if used > budget and count:
            return count
    return len(lines)


def number_of(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: "1 file", "2 files"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ignored_note(count: int, names: Sequence[str]) -> str:
    """Say what ignore files left out, with the first names, so that they can be asked for."""
    shown = list(map(printable, names))
    shown = shown[: max(1, count_fitting(shown, _MOST_NAMED))]
    more = ", …" if count > len(shown) else ""
    return (
        f"{number_of(count, 'entry', 'entries')} left out by .gitignore: {', '.join(shown)}{more}."
    )
