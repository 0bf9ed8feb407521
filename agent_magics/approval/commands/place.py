"""Where a command line would run, and how much judging it may still cost."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

# About 4 us each at worst; enough for an ordinary script of some 8,000 characters.
MOST_STEPS = 4_000


class TooLongToJudge(Exception):
    """Judging a command line would take longer than the engine's loop may stand still."""


@dataclass(slots=True)
class Effort:
    """The work that is left for judging one command line.

    Attributes:
        left: steps; every loop over what the command line holds pays for its rounds beforehand.
    """

    left: int = MOST_STEPS

    def spend(self, steps: int) -> None:
        """Pay for work that is about to be done.

        Raises:
            TooLongToJudge: there is not enough left.
        """
        self.left -= steps
        if self.left < 0:
            raise TooLongToJudge


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs.

    Attributes:
        folders: each folder that may be current by then (after `cd`), absolute; the first is
            where the whole command line starts.
        roots: the workspace and the other folders that may be written.
        denied: tells of an operand, as it stands or as an absolute path, whether only the person
            may read what it names.
        in_script: a shell reads the words.
        confined: what runs can write nothing and reach no network, whatever it tries.
    """

    folders: tuple[str, ...]
    roots: tuple[str, ...]
    denied: Callable[[str], bool]
    in_script: bool = False
    confined: bool = False
    effort: Effort = field(default_factory=Effort)

    @property
    def has_moved(self) -> bool:
        """Whether the current folder may be another than at the start."""
        return len(self.folders) > 1

    def paths_of(self, word: str) -> set[str]:
        """Return the absolute paths that `word` may mean."""
        self.effort.spend(sum(1 + (len(folder) + len(word)) // 50 for folder in self.folders))
        return {normal_path(os.path.join(folder, word)) for folder in self.folders}

    def real_paths_of(self, word: str) -> set[str]:
        """Return the paths that `word` may lead to, every symlink followed before each ``..``."""
        joined = [os.path.join(folder, word) for folder in self.folders]
        self.effort.spend(sum(5 + 2 * path.count("/") for path in joined))
        return {os.path.realpath(path) for path in joined}

    def is_denied(self, operand: str) -> bool:
        """Tell whether only the person may read what `operand` names."""
        # Following symlinks looks at every part of the path.
        parts = os.path.join(self.folders[0], operand).count("/")
        self.effort.spend(5 + 2 * parts)
        return self.denied(operand)

    def after_cd(self, target: str) -> "Place":
        """Return the place after `cd target`, which may also have failed."""
        return replace(self, folders=(*self.folders, *sorted(self.paths_of(target))))


def normal_path(path: str) -> str:
    """Return an absolute path without ``.``, ``..`` and doubled slashes."""
    return "/" + os.path.normpath(path).lstrip("/")


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Tell whether `path` is one of `folders` or in one of them."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
