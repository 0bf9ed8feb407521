"""Applies the rules about reading files, for one agent."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from agent_magics.approval.glob import matches_glob
from agent_magics.approval.rules_file import DECISIONS, Rule
from agent_magics.files.beneath import real_path

_SIGN = re.compile(r"[*?\[]")  # of a glob


@dataclass(frozen=True)
class ReadRules:
    """The rules about reading files; the strictest match applies.

    Attributes:
        folder: the workspace, to which relative patterns are relative.
        rules: the applicable rules.
    """

    folder: Path = Path()
    rules: Sequence[Rule] = ()

    def decision(self, path: str) -> str:
        """Return "allow", "prompt" or "forbid", and "" where no rule matches `path`.

        Args:
            path: absolute, without symlinks.
        """
        absolute = os.path.normpath(self.folder / path)
        decisions = (
            rule.decision
            for rule, globs in self._globs
            if any(matches_glob(glob, absolute) for glob in globs)
        )
        return max(decisions, key=DECISIONS.index, default="")

    @cached_property
    def _globs(self) -> list[tuple[Rule, tuple[str, ...]]]:
        return [(rule, _globs_of(rule, self.folder)) for rule in self.rules]

    def is_forbidden(self, path: str) -> bool:
        """Tell whether both the content and the name of `path` are hidden from the model."""
        return self.decision(path) == "forbid"

    @property
    def strict(self) -> tuple[Rule, ...]:
        """The rules that ask or forbid."""
        return tuple(rule for rule in self.rules if rule.decision != "allow")


def covers_path(rule: Rule, path: str, folder: Path) -> bool:
    """Tell whether a rule about files matches `path`, which may be relative to `folder`."""
    absolute = os.path.normpath(folder / path)
    return any(matches_glob(glob, absolute) for glob in _globs_of(rule, folder))


def _globs_of(rule: Rule, folder: Path) -> tuple[str, ...]:
    """Return the absolute globs of a rule about files.

    A rule that asks or forbids also covers everything below its matches, and the targets of their
    links; a rule that allows does not, since a command can change both.
    """
    if not isinstance(rule.pattern, str):
        return ()
    start, rest = split_pattern(rule.pattern, folder)
    starts = {start}
    if rule.decision != "allow":
        rest = rest if rest[-1:] == ["**"] else [*rest, "**"]
        starts.add(real_path(start))
    return tuple("/".join([_SIGN.sub(r"[\g<0>]", each).rstrip("/"), *rest]) for each in starts)


def split_pattern(pattern: str, folder: Path) -> tuple[str, list[str]]:
    """Split a pattern into the absolute path of its fixed beginning, and its other components.

    Args:
        pattern: a glob, relative to `folder`, or from ``/`` or ``~/``.
        folder: the workspace.
    """
    if pattern.startswith("~/"):
        pattern = os.path.expanduser("~") + pattern[1:]  # noqa: PTH111 - text, not a path
    parts = os.path.normpath(pattern).split("/")
    fixed = list(takewhile(lambda part: not _SIGN.search(part), parts))
    start = os.path.normpath(Path("/" if pattern.startswith("/") else folder, *fixed))
    return start, parts[len(fixed) :]
