"""Finds the git repositories that a command makes or moves, and what git would run from them."""

import os
from collections.abc import Iterable, Iterator

from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.git_changes import what_a_rebase_runs, what_git_would_run
from agent_magics.exec.protected.git_places import git_parts
from agent_magics.exec.protected.put_back import Finding, Quarantine, move_away
from agent_magics.files.paths import read_judge
from agent_magics.files.survey import Survey, survey
from agent_magics.text.brief import brief_line, first_of

_MOST_TOLD = 200  # characters of a command


class NewRepositories:
    """The repositories of one command's writable folders, beside those that were there before.

    Args:
        confinement: the command's confinement; it is about to start.

    Attributes:
        before: what was found in these folders.
    """

    def __init__(self, confinement: Confinement) -> None:
        *folders, _ = confinement.writable  # the last one is for temporary files
        self._roots = roots = tuple(folders)
        self._protected = frozenset(confinement.protected)
        # The survey for the command's confinement was made just now.
        self.before = survey(roots, read_judge(), age=0.5)
        self._known = _repositories(self.before)
        self._rebases = {line for place in self._known for line in what_a_rebase_runs(place)}
        self._reported: set[str] = set()

    def examine(self, quarantine: Quarantine) -> list[Finding]:
        """Return findings that are new since the command began and not yet reported."""
        now = survey(self._roots, read_judge())
        found = [Finding(path, "not protected", why=why) for path, why in now.missed.items()]
        for place in sorted(_repositories(now) - self._known):
            if place in now.bare and place in self._roots:
                # Without HEAD git no longer treats the workspace's top folder as a repository.
                found.append(move_away(f"{place}/HEAD", quarantine))
            elif why := what_git_would_run(place, self._protected, self._roots):
                found.append(Finding(place, "new", why=why))
        found = [each for each in found if each.path not in self._reported]
        self._reported |= {each.path for each in found if not each.done}
        return found + self._examine_rebases(_repositories(now))

    def _examine_rebases(self, repositories: Iterable[str]) -> list[Finding]:
        found = []
        for place in sorted(repositories):
            if new := what_a_rebase_runs(place) - self._rebases:
                self._rebases |= new
                named = [brief_line(line, _MOST_TOLD) for line in sorted(new)]
                why = f"when its rebase goes on, git will do: {first_of(named, 3, '; ')}"
                found.append(Finding(place, "changed", why=why))
        return found


class OwnRepositories:
    """The repositories that were there before the first command that might have made them."""

    def __init__(self) -> None:
        # A writable folder -> its repositories, and what could not be looked into.
        self._of: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def note(self, folders: Iterable[str], found: Survey) -> None:
        """Record what a survey found in folders that a command is about to be able to write."""
        for folder in folders:
            own, missed = self._of.get(folder, (_repositories(found), frozenset(found.missed)))
            # One that comes again is another.
            self._of[folder] = frozenset(filter(os.path.lexists, own)), missed

    def others_in(self, folders: Iterable[str]) -> list[Finding]:
        """Return the other repositories in these folders because of which git may run a program,
        and what cannot be looked into.

        They may be anywhere: git also looks into what a repository names as its submodules.
        """
        # No command could write any others.
        return [
            each for folder in folders if folder in self._of for each in self._others_in(folder)
        ]

    def _others_in(self, folder: str) -> Iterator[Finding]:
        (own, missed), now = self._of[folder], survey((folder,), read_judge())
        parts = {part for place in own for part in git_parts(place)}
        for place in sorted(_repositories(now) - own):
            if why := what_git_would_run(place, parts, (folder,)):
                yield Finding(place, "new", why=why)
        for path, why in now.missed.items():
            if path not in missed:
                yield Finding(path, "not protected", why=why)


def _repositories(found: Survey) -> set[str]:
    return {*found.repositories, *found.bare}
