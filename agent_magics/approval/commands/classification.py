"""Classifies a command line before it runs: known to only read, known to be dangerous, or neither.

Law: SAFE is a guarantee, so everything not understood is not SAFE. DANGEROUS is a best effort; what
it misses needs approval like any other command. Nothing is run, and the file system is only read,
to tell files from folders and to resolve links. The time is bounded for any input, because the
engine's event loop is blocked meanwhile: a command line that would take long is only searched by
regexes.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from agent_magics.approval.commands.danger import danger_in_text, danger_of
from agent_magics.approval.commands.place import CommandPlace, TooLongToJudge
from agent_magics.approval.commands.safe import only_reads
from agent_magics.files.beneath import real_path

_MOST_WORDS = 10_000  # limit for searching an overlong command line


class CommandRisk(StrEnum):
    """Risk class of a command line."""

    SAFE = "safe"
    DANGEROUS = "dangerous"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class CommandVerdict:
    """A risk class, and its reason in a few words."""

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
    """Classify a command line.

    Args:
        argv: program and arguments, as they would be run (without a shell).
        roots: the workspace, then the other folders that may be written.
        cwd: the folder in which it would run; the first root if not given.
        denied: tells of an operand, as written and as an absolute path, whether the model may not
            read what it names.
        confined: whether a command found safe will run in a read-only sandbox without network.

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
        return CommandVerdict(CommandRisk.OTHER, "it may do more than read")
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
) -> CommandPlace:
    """Return the context in which a command is classified; see `classify_command` for the
    arguments.
    """
    bases = tuple(os.path.abspath(root) for root in roots) or (os.getcwd(),)
    known = tuple(dict.fromkeys((*bases, *(real_path(base) for base in bases))))
    return CommandPlace((os.path.abspath(cwd or bases[0]),), known, denied, confined=confined)
