"""Finds the git repositories that a command makes or moves, and what git would run from them."""

from collections.abc import Iterable

from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.protected.git_changes import what_a_rebase_runs, what_git_would_run
from agent_magics.exec.protected.put_back import Finding, Quarantine, move_away
from agent_magics.files.paths import read_judge
from agent_magics.files.survey import Survey, survey
from agent_magics.text.brief import brief_line, first_of

_MOST_TOLD = 200  # characters of a command


class NewRepositories:
    """The repositories of one command's writable folders, beside those that were there before.

    Args:
        confinement: the command's confinement; it is about to start.
    """

    def __init__(self, confinement: Confinement) -> None:
        *folders, _ = confinement.writable  # the last one is for temporary files
        self._roots = roots = tuple(folders)
        self._protected = frozenset(confinement.protected)
        # The survey for the command's confinement was made just now.
        self._known = _repositories(survey(roots, read_judge(), age=0.5))
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


def _repositories(found: Survey) -> set[str]:
    return {*found.repositories, *found.bare}
