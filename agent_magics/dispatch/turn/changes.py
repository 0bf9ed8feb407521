"""Defines the interface by which calls report their changes in files."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol


class ChangeWatch(Protocol):
    """The workspace while a command or a piece of code runs."""

    def hand_over(self) -> None:
        """Report the changes so far, because it goes on as a session."""

    def finish(self) -> None:
        """Report the changes, because it has ended."""


class ChangeTracker(Protocol):
    """Records the changes of calls in files."""

    def writing(self, paths: Sequence[Path]) -> AbstractContextManager[None]:
        """Record the changes of the work inside to these files."""

    def saw(self, path: Path) -> None:
        """Take note that the model has read a file as it is now."""

    def watch(self) -> ChangeWatch:
        """Scan the workspace before a command or a piece of code, and return its watch."""
