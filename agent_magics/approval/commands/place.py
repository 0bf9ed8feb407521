"""Defines where a command line would run, and the budget for classifying it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from agent_magics.files.beneath import real_path

# At most about 4 us each; enough for an ordinary script of some 8,000 characters.
MOST_STEPS = 4_000
# Stands for a folder that is not known before a command runs.
UNKNOWN_FOLDER = "/(a folder)/(not known)"


class TooLongToJudge(Exception):
    """Classifying a command line would block the engine's event loop for too long."""


@dataclass(slots=True)
class Effort:
    """The remaining budget for classifying one command line.

    Attributes:
        left: steps; every loop over parts of the command line spends its rounds in advance.
    """

    left: int = MOST_STEPS

    def spend(self, steps: int) -> None:
        """Deduct `steps` from the budget, before the work is done.

        Raises:
            TooLongToJudge: not enough steps are left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooLongToJudge


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The context in which a command runs.

    Attributes:
        folders: every folder that may be the current one (after `cd`), absolute; the first is
            where the command line starts.
        roots: the workspace and the other folders that may be written.
        denied: tells of an operand, as written or as an absolute path, whether the model may not
            read what it names.
        in_script: whether a shell reads the words.
        confined: whether it runs in a sandbox that can write nothing and reach no network.
    """

    folders: tuple[str, ...]
    roots: tuple[str, ...]
    denied: Callable[[str], bool]
    in_script: bool = False
    confined: bool = False
    effort: Effort = field(default_factory=Effort)

    @property
    def has_moved(self) -> bool:
        """Whether the current folder may differ from that at the start."""
        return len(self.folders) > 1

    def paths_of(self, word: str) -> set[str]:
        """Return the absolute paths that `word` may mean."""
        self.effort.spend(sum(1 + (len(folder) + len(word)) // 50 for folder in self.folders))
        return {normal_path(os.path.join(folder, word)) for folder in self.folders}

    def real_paths_of(self, word: str) -> set[str]:
        """Return the paths that `word` may resolve to, with every symlink followed before each
        ``..``.
        """
        joined = [os.path.join(folder, word) for folder in self.folders]
        self.effort.spend(sum(5 + 2 * path.count("/") for path in joined))
        return {real_path(path) for path in joined}

    def is_denied(self, operand: str) -> bool:
        """Tell whether the model may not read what `operand` names."""
        # Resolving symlinks examines every component of the path.
        parts = os.path.join(self.folders[0], operand).count("/")
        self.effort.spend(5 + 2 * parts)
        return self.denied(operand)

    def after_cd(self, target: str) -> "CommandPlace":
        """Return the context after `cd target`, which may have failed."""
        reached = (*self.folders, *sorted(self.paths_of(target)))
        return replace(self, folders=tuple(dict.fromkeys(reached)))


def normal_path(path: str) -> str:
    """Return an absolute path without ``.``, ``..`` and doubled slashes."""
    return "/" + os.path.normpath(path).lstrip("/")
