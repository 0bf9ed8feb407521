"""Judges a command line before it runs: known to only read, known to be dangerous, or neither.

Law: SAFE is a promise, so everything not understood is not SAFE. DANGEROUS is a best effort; what
it misses is still asked about as any other command. Pure: the file system is looked at only to tell
files from folders and to follow links, nothing is run. Quick whatever the words are, because the
engine's loop stands still meanwhile: what would take long is not judged, only searched.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent_magics.dispatch.exec_danger import danger_in_text, danger_of
from agent_magics.dispatch.exec_place import Place, TooLongToJudge
from agent_magics.dispatch.exec_safe import only_reads

_MOST_WORDS = 10_000  # that are searched


class CommandRisk(StrEnum):
    """What is known about a command line."""

    SAFE = "safe"
    DANGEROUS = "dangerous"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class CommandVerdict:
    """A risk, and why, in a few words."""

    risk: CommandRisk
    reason: str


def classify_command(
    argv: Sequence[str],
    *,
    roots: Sequence[Path],
    cwd: Path | None = None,
    denied: Callable[[str], bool] = lambda operand: False,
    confined: bool = False,
) -> CommandVerdict:
    """Judge a command line by its words alone.

    Args:
        argv: program and arguments, as they would be run (without a shell).
        roots: the workspace, then the other folders that may be written.
        cwd: where it would run; the first root if not given.
        denied: tells of an operand, as it stands and as an absolute path, whether only the person
            may read what it names.
        confined: a command found safe will be able to write nothing and reach no network.

    Returns:
        The risk and the reason.
    """
    place = place_of(roots, cwd, denied, confined=confined)
    try:
        place.effort.spend(len(argv))
        place.effort.spend(sum(map(len, argv)) // 8)
        if reason := danger_of(argv, place):
            return CommandVerdict(CommandRisk.DANGEROUS, reason)
        if only_reads(argv, place):
            return CommandVerdict(CommandRisk.SAFE, "it only reads")
        return CommandVerdict(CommandRisk.OTHER, "not known to only read")
    except TooLongToJudge:
        if reason := danger_in_text(" ".join(argv[:_MOST_WORDS])):
            return CommandVerdict(CommandRisk.DANGEROUS, reason)
        return CommandVerdict(CommandRisk.OTHER, "too long to judge")


def place_of(
    roots: Sequence[Path],
    cwd: Path | None,
    denied: Callable[[str], bool],
    *,
    confined: bool = False,
) -> Place:
    """Return where a command runs, for judging it; see `classify_command` for the arguments."""
    bases = tuple(os.path.abspath(root) for root in roots) or (os.getcwd(),)
    known = tuple(dict.fromkeys((*bases, *(os.path.realpath(base) for base in bases))))
    return Place((os.path.abspath(cwd or bases[0]),), known, denied, confined=confined)
