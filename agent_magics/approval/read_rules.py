"""Applies the rules about reading files, for one agent."""

import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, takewhile
from pathlib import Path

from agent_magics.approval.glob import matches_glob
from agent_magics.approval.rules_file import DECISIONS, Rule
from agent_magics.files.beneath import folders_of_links, is_below, real_path

MOST_ENTRIES = 50_000  # looked at for one rule
_STRICT = ("prompt", "forbid")
_ORDER = ("", *DECISIONS)
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

        A hard link to a file that a rule withholds is withheld as that file is.

        Args:
            path: absolute, without symlinks.
        """
        if not self.rules:  # as in nearly all workspaces; a walk asks about each file
            return ""
        found, other = self._decision_by_name(path), self.other_name(path)
        return max(found, self._decision_by_name(other), key=_ORDER.index) if other else found

    def other_name(self, path: str) -> str:
        """Return the withheld path of the file of which `path` is another hard link; or ""."""
        if not self.strict:
            return ""
        try:
            status = os.lstat(self._absolute(path))
        except (OSError, ValueError):
            return ""
        return self._linked.get((status.st_dev, status.st_ino), "") if _is_linked(status) else ""

    def entries(self, start: str) -> Iterator[tuple[str, bool]]:
        """Yield (path, whether a rule withholds it) for `start` and all below; follow no links.

        A folder that a rule withholds is not searched: all in it is withheld with it.
        """
        return self._entries(start, self.decision)

    def starts(self) -> list[str]:
        """Return the folders in which everything that the rules withhold stands."""
        starts = [real_path(split_pattern(str(e.pattern), self.folder)[0]) for e in self.strict]
        # Hard links may stand anywhere; where there is none, nothing more is searched.
        return list(dict.fromkeys([*starts, *([real_path(self.folder)] if self._linked else [])]))

    def _entries(self, start: str, decide: Callable[[str], str]) -> Iterator[tuple[str, bool]]:
        waiting = [start] if os.path.lexists(start) else []
        while waiting:
            path = waiting.pop()
            is_ruled = decide(path) in _STRICT
            yield path, is_ruled
            # Not a folder, not readable, or deleted meanwhile: no entries.
            if not (is_ruled or Path(path).is_symlink()):
                with suppress(OSError), os.scandir(path) as entries:
                    waiting.extend(entry.path for entry in entries)

    @cached_property
    def _linked(self) -> dict[tuple[int, int], str]:
        """The withheld files of several names: (device, inode) -> the strictest name."""
        found: dict[tuple[int, int], str] = {}
        for rule in self.strict:
            start = real_path(split_pattern(str(rule.pattern), self.folder)[0])
            entries = islice(self._entries(start, self._decision_by_name), MOST_ENTRIES)
            for path in (inner for each, is_ruled in entries if is_ruled for inner in _files(each)):
                with suppress(OSError):
                    status = os.lstat(path)
                    place = (status.st_dev, status.st_ino)
                    forbidden = self._decision_by_name(path) == "forbid"
                    if _is_linked(status) and (forbidden or place not in found):
                        found[place] = path
        return found

    def _decision_by_name(self, path: str) -> str:
        absolute = os.path.normpath(self._absolute(path))
        decisions = (
            rule.decision
            for rule, globs in self._globs
            if any(matches_glob(glob, absolute) for glob in globs)
        )
        return max(decisions, key=DECISIONS.index, default="")

    def _absolute(self, path: str) -> str:
        return os.path.join(self.folder, path)  # noqa: PTH118 - a Path takes 5 us, for each file

    @cached_property
    def _globs(self) -> list[tuple[Rule, tuple[str, ...]]]:
        return [(rule, _globs_of(rule, self.folder)) for rule in self.rules]

    def is_forbidden(self, path: str) -> bool:
        """Tell whether both the content and the name of `path` are hidden from the model."""
        return self.decision(path) == "forbid"

    @property
    def forbidden(self) -> tuple[str, ...]:
        """The patterns of the rules that forbid."""
        return tuple(str(rule.pattern) for rule in self.rules if rule.decision == "forbid")

    def forbids_result(self, reads: Sequence[str], known: Collection[str]) -> bool:
        """Tell whether the text of a result may be of a file that is forbidden now.

        Args:
            reads: what was read: files, and folders with a slash at their end.
            known: the patterns that held when it was read, and by which it was kept out.
        """
        if any(map(self.is_forbidden, reads)):
            return True
        folders = [os.path.normpath(path) for path in reads if path.endswith("/")]
        # Which files there were is not known any more: what a pattern may match counts.
        for pattern in [each for each in self.forbidden if folders and each not in known]:
            start, rest = split_pattern(pattern, self.folder)
            places = (start, real_path(start))
            if any(is_below(place, folders) for place in places):
                return True
            if rest and any(is_below(folder, places) for folder in folders):
                return True
        return False

    @cached_property
    def strict(self) -> tuple[Rule, ...]:
        """The rules that ask or forbid."""
        return tuple(rule for rule in self.rules if rule.decision != "allow")


def _is_linked(status: os.stat_result) -> bool:
    return status.st_nlink > 1 and stat.S_ISREG(status.st_mode)


def _files(path: str) -> Iterator[str]:
    """Yield `path`, and the files below it where it is a folder."""
    inside = (f"{parent}/{name}" for parent, _, names in os.walk(path) for name in names)
    return islice(chain((path,), inside), MOST_ENTRIES)


def covering(
    rules: Sequence[Rule], path: str, folder: Path, movable: Sequence[str] = ()
) -> list[Rule]:
    """Return the rules about files that match `path`, which may be relative to `folder`.

    For one that asks or forbids, either the path as it is written or where it leads is enough. Both
    must be allowed, be it by different rules.

    Args:
        rules: all that might match.
        path: any.
        folder: the workspace.
        movable: folders in which commands may change links, without links.
    """
    places = _places_of(path, folder)
    matched = [
        (rule, {place for place in places if any(matches_glob(glob, place) for glob in globs)})
        for rule in rules
        for globs in [_globs_of(rule, folder, movable)]
    ]
    allowed = [found for rule, found in matched if rule.decision == "allow"]
    is_allowed = set().union(*allowed) == places
    return [rule for rule, found in matched if found and (is_allowed or rule.decision != "allow")]


def covers_all(globs: Sequence[str], path: str, folder: Path) -> bool:
    """Tell whether `globs` match a path both as it is written and where its links lead."""
    return all(
        any(matches_glob(glob, place) for glob in globs) for place in _places_of(path, folder)
    )


def _places_of(path: str, folder: Path) -> set[str]:
    """Return a path without ``..``, and where the system finds it; "" if it can find none."""
    written = os.path.join(folder, _from_home(path))  # noqa: PTH118 - text, not a path
    try:
        return {os.path.normpath(written), real_path(written)}
    except (OSError, ValueError):
        return {os.path.normpath(written), ""}


def _globs_of(rule: Rule, folder: Path, movable: Sequence[str] = ("/",)) -> tuple[str, ...]:
    """Return the absolute globs of a rule about files.

    A rule that asks or forbids also covers everything below its matches, and the targets of their
    links; one that allows covers only the targets of links that no command can change.
    """
    if not isinstance(rule.pattern, str):
        return ()
    start, rest = split_pattern(rule.pattern, folder)
    if rule.decision == "allow":
        return tuple(_glob_from(each, rest) for each in {start, _behind_fixed(start, movable)})
    rest = rest if rest[-1:] == ["**"] else [*rest, "**"]
    return tuple(_glob_from(each, rest) for each in {start, real_path(start)})


def _behind_fixed(path: str, movable: Sequence[str]) -> str:
    """Return where a path leads by links that stand in no folder of `movable`; else the path."""
    try:
        is_fixed = not any(is_below(folder, movable) for folder in folders_of_links(path))
        return real_path(path) if is_fixed else path
    except (OSError, ValueError):
        return path


def target_of(pattern: str, folder: Path) -> str:
    """Return the pattern of that to which the links in a pattern's beginning now lead; "" where it
    has none.
    """
    start, rest = split_pattern(pattern, folder)
    target = real_path(start)
    return "" if target == start else _glob_from(target, rest)


def unfollowed(rule: Rule, held: Sequence[Rule], folder: Path, movable: Sequence[str]) -> str:
    """Return the pattern behind the link with which a rule begins, if no allowing rule of `held`
    is for it; else "".
    """
    target = target_of(str(rule.pattern), folder)
    allowing = [each for each in (rule, *held) if each.decision == "allow"]
    globs = {glob for each in allowing for glob in _globs_of(each, folder, movable)}
    return "" if target in globs else target


def globs_at_present(pattern: str, folder: Path) -> tuple[str, ...]:
    """Return the absolute globs of a pattern, and of what the links in its beginning now lead
    to.
    """
    start, rest = split_pattern(pattern, folder)
    return tuple(_glob_from(each, rest) for each in {start, real_path(start)})


def _glob_from(start: str, rest: Sequence[str]) -> str:
    return "/".join([_SIGN.sub(r"[\g<0>]", start).rstrip("/"), *rest])


def split_pattern(pattern: str, folder: Path) -> tuple[str, list[str]]:
    """Split a pattern into the absolute path of its fixed beginning, and its other components.

    Args:
        pattern: a glob, relative to `folder`, or from ``/`` or ``~/``.
        folder: the workspace.
    """
    pattern = _from_home(pattern)
    parts = os.path.normpath(pattern).split("/")
    fixed = list(takewhile(lambda part: not _SIGN.search(part), parts))
    start = os.path.normpath(Path("/" if pattern.startswith("/") else folder, *fixed))
    return start, parts[len(fixed) :]


def _from_home(path: str) -> str:
    if path.startswith("~/"):
        return os.path.expanduser("~") + path[1:]  # noqa: PTH111 - text, not a path
    return path
