"""Decides which files the reading tools may see, opens them, and formats their results.

Law: a protected file is shown only if the question about this very file was asked for this very
call. What a path leads to may change between the question and the reading, even by an earlier call
of the same answer, so the opened file is judged again.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_magics.approval.actions import Action, ActionKind, fingerprint_of
from agent_magics.approval.read_rules import ReadRules
from agent_magics.dispatch.context import ToolContext, status_of
from agent_magics.dispatch.results.stored import is_handle
from agent_magics.files.beneath import closing_descriptor
from agent_magics.files.folders import ALL_RIGHTS, WalkRights
from agent_magics.files.paths import (
    is_denied_read,
    is_second_name,
    literal_path,
    printable,
    read_judge,
    resolve_path,
    shown_path,
)
from agent_magics.files.text.windows import open_regular, opened_path
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.items import Json
from agent_magics.protocol.tools import ToolOutput
from agent_magics.text.brief import brief, first_of, number_of

_MOST_READ_BY_HAND = 10_000  # characters of a result's repr
FOR_NOTES = 400  # characters of a budget reserved for notes on the result
_MOST_NAMED = 120  # characters of the names of what was left out
_ASKED = "protected reads asked about"
_RULED = {"forbid": "a rule forbids reading it", "prompt": "a rule asks about reading it"}


@dataclass(frozen=True, slots=True)
class ReadJudge:
    """Decides which files the model may not read unasked, by the deny list and the read rules.

    Attributes:
        rules: the read rules; none where a person calls by hand, who may read everything.
        roots: the workspace's folders, whose protected files are protected under all their names.
    """

    rules: ReadRules = field(default_factory=ReadRules)
    roots: Sequence[Path] = ()

    def __call__(self, path: str) -> str:
        """Return why `path` (absolute, without symlinks) is not read unasked, or ""."""
        return self.ruled(path) or self.denied(Path(path))

    def denied(self, path: Path) -> str:
        """Return why the deny list withholds `path` from the model, or ""."""
        return is_denied_read(path, self.roots)

    def ruled(self, path: str) -> str:
        """Return which kind of rule withholds `path` from the model, or ""."""
        return _RULED.get(self.rules.decision(path), "")

    def is_withheld(self, path: str) -> bool:
        """Return whether even the existence of `path` is hidden from the model."""
        return self.rules.is_forbidden(path)

    @property
    def forbids_any(self) -> bool:
        """Whether there is anything whose existence is hidden from the model."""
        return any(rule.decision == "forbid" for rule in self.rules.rules)


def judge_of(ctx: ToolContext | None) -> ReadJudge:
    """Return the `ReadJudge` of a call."""
    return ReadJudge() if ctx is None else ReadJudge(ctx.turn.read_rules(), ctx.config.roots)


def begin_walk(path: str, ctx: ToolContext | None) -> tuple[Path, str, WalkRights]:
    """Return where the walk of a call begins, its name for messages, and what the call may see.

    Raises:
        RespondToModel: the path may not be read.
    """
    resolved, shown = place(path, ctx)
    return resolved, shown, _rights(ctx, refuse_unasked(resolved, shown, ctx))


def _rights(ctx: ToolContext | None, approved: str) -> WalkRights:
    """Return what a walk over a folder may see.

    Args:
        ctx: the call; None for one by hand, which sees everything.
        approved: why the folder itself is protected, where reading it was approved; its files are
            then read, but for those that a rule forbids.
    """
    if ctx is None:
        return ALL_RIGHTS
    rules = judge_of(ctx)
    is_withheld = rules.is_withheld if rules.rules.rules else None
    denied = read_judge()

    def judge(path: str) -> str:
        return rules.ruled(path) or denied(path)

    if not approved:
        return WalkRights(judge, is_withheld, ctx.cancelled.is_set)
    # What a rule asks about holds no keys for that.
    kept = denied if approved in _RULED.values() else None
    return WalkRights(kept, is_withheld, ctx.cancelled.is_set)


def assess_read(arguments: Mapping[str, Any], ctx: ToolContext) -> list[Action]:
    """Return the approval action of a call that reads a path; a link's own path is judged, too."""
    written = arguments.get("path", ".")
    # Not `ctx.validate_path`: before approval it refuses what the person will be asked about.
    path, literal = resolve_path(written, ctx.cwd), literal_path(written, ctx.cwd)
    judge = judge_of(ctx)
    denied = judge.denied(literal) or judge.denied(path)
    if not is_handle(written):  # whose own reads are noted when it is opened
        status_of(ctx).note_reads(str(path))
    if denied or judge.ruled(str(path)) or judge.ruled(str(literal)):
        ctx.extra.setdefault(_ASKED, {})[ctx.call_id] = path
    kind = ActionKind.READ_DENIED if denied else ActionKind.READ
    fingerprint = fingerprint_of(ctx.name, dict(arguments), str(path))
    names = shown_path(path, ctx.cwd), denied, fingerprint
    return [Action(kind, *names, subject=str(path), written=str(literal))]


def place(path: str, ctx: ToolContext | None) -> tuple[Path, str]:
    """Resolve a path argument.

    Returns:
        The absolute path without symlinks, and its name for messages.

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


@contextmanager
def opened(path: str, ctx: ToolContext | None) -> Iterator[tuple[int, Path, str]]:
    """Open the file at a path argument for reading, and judge it again once it is open.

    Yields:
        Its descriptor, its absolute path without symlinks, and its name for messages.

    Raises:
        RespondToModel: there is no such file, it is not regular, or it may not be read.
    """
    resolved, shown = place(path, ctx)
    with closing_descriptor(open_regular(resolved, shown, judge_of(ctx).is_withheld)) as file:
        refuse_unasked(opened_path(file) or resolved, shown, ctx, os.fstat(file))
        yield file, resolved, shown


def refuse_unasked(
    path: Path, shown: str, ctx: ToolContext | None, opened: os.stat_result | None = None
) -> str:
    """Check that a file may be read in this call; return why it is protected, or "".

    Args:
        path: the file that is about to be read, or was opened.
        shown: its name for messages.
        ctx: the call; None for one by hand, which may read everything.
        opened: the `stat` of the opened file.

    Raises:
        RespondToModel: it is protected, and the person was not asked about it for this call.
    """
    reason = "" if ctx is None else judge_of(ctx)(str(path))
    if ctx is not None and not reason and opened and is_second_name(opened, ctx.config.roots):
        reason = "a second name of a protected file"
    if ctx is not None and reason and ctx.extra.get(_ASKED, {}).get(ctx.call_id) != path:
        raise RespondToModel(
            f"{shown} is protected now ({reason}) and was not when this call was checked. "
            "Call again, so that the person can be asked."
        )
    return reason


def count_fitting(lines: Sequence[str], budget: int) -> int:
    """Return how many of `lines`, from the first, fit in `budget` characters; at least one."""
    used = 0
    for count, line in enumerate(lines):
        used += len(line) + 1
        if used > budget and count:
            return count
    return len(lines)


def ignored_note(count: int, names: Sequence[str]) -> str:
    """Return a note on the entries left out by ignore files, with the first of their names."""
    shown = list(map(printable, names))
    shown = shown[: max(1, count_fitting(shown, _MOST_NAMED))]
    more = ", …" if count > len(shown) else ""
    return (
        f"{number_of(count, 'entry', 'entries')} left out by .gitignore: {', '.join(shown)}{more}."
    )


def stopped_note(seconds: float, unseen: Sequence[str]) -> str:
    """Return a note on a walk that time has ended, with what it has not looked through."""
    names = [brief(name, _MOST_NAMED) for name in unseen]
    shown = first_of(names, max(1, count_fitting(names, _MOST_NAMED)))
    rest = f" Not looked through: {shown}." if names else ""
    return f"Stopped after {seconds:.0f} s: there may be more.{rest} Give a smaller folder."


class Readable(ABC):
    """A tool's result with a short `repr` for people, and an output within a model's budget."""

    def __repr__(self) -> str:
        return self._text(_MOST_READ_BY_HAND)

    def to_output(self, budget: int) -> ToolOutput:
        """Return as much as fits into `budget` characters, the counts, and how to go on."""
        return ToolOutput(self._text(budget), details=self._details)

    @abstractmethod
    def _text(self, budget: int) -> str:
        """Return as much of the result as fits into `budget` characters."""

    @property
    @abstractmethod
    def _details(self) -> Mapping[str, Json]:
        """The complete counts, for front ends."""
