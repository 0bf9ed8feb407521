"""Compares tool outputs of this run with the recorded ones, ignoring volatile parts."""

import itertools
import re
from collections.abc import Callable, Sequence

from agent_magics.models.recordings.redaction import Hider
from agent_magics.text.brief import brief
from agent_magics.text.differences import changed_lines

# Patterns of text that differs from run to run, and their placeholders, applied in this order. None
# matches next to braces, so that one replacement does not affect the next.
_CLOCK = r"\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|CES?T|[+-]\d\d(?::?\d\d)?))?"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY = r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,?"
VOLATILE = (
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "{uuid}"),
    (rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}{_ZONE}", "{time}"),
    # What `date` prints, and the dates of HTTP and mail.
    (
        rf"{_DAY} +{_MONTH} +\d\d? +{_CLOCK}(?: [AP]M)?(?: [A-Z]{{2,5}}| [+-][\d:]+)? \d{{4}}",
        "{time}",
    ),
    (rf"(?:{_DAY} )?\d\d? {_MONTH} \d{{4}} {_CLOCK}(?: [AP]M)?{_ZONE}", "{time}"),
    (r"\d+m ?\d+(?:\.\d+)?s", "{duration}"),
    (r"\d+(?:\.\d+)?(?:e-?\d+)? ?(?:seconds?|secs?|minutes?|mins?|ms|µs|us|ns|s)", "{duration}"),
    (r"\d\d?:\d\d:\d\d(?:\.\d+)?", "{clock}"),
    (r"\d+(?:\.\d+)? ?[kMGT]?i?B/s", "{rate}"),
    (r"0x[0-9a-f]{6,}", "{address}"),
    (r"(pid|process(?: id)?)([ :=#]+)\d+", r"\1\2{pid}"),
    (r"(127\.0\.0\.1|localhost|0\.0\.0\.0|\[::1\]):\d+", r"\1:{port}"),
    (r"(call|resp|msg|fc|rs|chatcmpl)[_-](?=[0-9a-z]*\d)[0-9a-z]{8,}", r"\1_{id}"),
    (r"(token count: )\d+", r"\1{count}"),  # it depends on the other replaced texts
)
# Lines of ls -l: owner, group and time depend on the machine, and how long a folder is on its disk.
_MODE, _SIZE = r"[-dlbcps][-rwxst]{9}", r"\d[\d.]*[KMGT]?"
_LISTED_TIME = r"(?:\w{3} +\d+ +[\d:]{4,5}|\d+\.? \w{3}\.? +[\d:]{4,5}|\{time\})"
LISTED_FILES = (
    rf"(?m)^({_MODE})[.+@]? +\d+ +\S+ +\S+ +({_SIZE}) +{_LISTED_TIME} ",
    r"\1 {owner} \2 {time} ",
)
LISTED_FOLDERS = (rf"(?m)^(d\S+ \{{owner\}}) {_SIZE} ", r"\1 {size} ")
LISTED_TOTAL = (rf"(?m)^total {_SIZE}$(?=\n{_MODE})", "total {size}")
# Temporary names by Python, by mktemp, and of the folders that we give to commands.
TEMPORARY_NAMES = (r"\{tmp\}(?:/(?:\{name\}|agent-magics-\d+-\w+|tmp[._-]?\w+))+", "{tmp}/{name}")
# File names that IPython gives to cells.
CELL_FILES = (
    r"<ipython-input-\d+-\w+>|\{tmp\}/ipykernel_\d+/\d+\.py|\bCell In ?\[\d+\]|\bIn \[\d+\]",
    "{cell}",
)
_VOLATILE = tuple(
    (re.compile(pattern, re.IGNORECASE), mark)
    for pattern, mark in (
        *((rf"(?<![\w}}]){pattern}(?![\w{{])", mark) for pattern, mark in VOLATILE),
        TEMPORARY_NAMES,
        CELL_FILES,
        LISTED_FILES,
        LISTED_FOLDERS,
        LISTED_TOTAL,
    )
)

# Limits of a displayed difference: changed lines of one call, characters of one line.
SHOWN_LINES = 6
SHOWN_WIDTH = 120


_HIDE_KEYS = Hider(literals=False)


def normalise_text(text: str, hide: Callable[[str], str] = _HIDE_KEYS) -> str:
    """Return a tool's output with placeholders for parts that differ from run to run.

    These are paths, keys, dates and times, durations and rates, hexadecimal addresses, UUIDs,
    process ids, local ports, ids of messages and calls, token counts, temporary names, cells, and
    the owners, times and sizes of folders of ``ls -l``. Normalising is idempotent and cannot be
    reversed.

    Args:
        text: the output.
        hide: replaces personal data by placeholders; a `Hider` without literals.
    """
    text = hide(text).strip()
    for pattern, mark in _VOLATILE:
        text = pattern.sub(mark, text)
    return text


def short_diff(expected: str, actual: str) -> str:
    """Return the first differing lines, "-" as recorded, "+" as now."""
    before, after = expected.splitlines(), actual.splitlines()
    changes: list[str] = []
    for first, last, start, stop in changed_lines(before, after):
        for old, new in itertools.zip_longest(before[first:last], after[start:stop]):
            begin = _window(old, new)
            changes += [] if old is None else [f"-{_cut(old, begin)}"]
            changes += [] if new is None else [f"+{_cut(new, begin)}"]
    shown = _first_of_both(changes)
    return "\n".join([*shown, *(["…"] if len(shown) < len(changes) else [])])


def _first_of_both(changes: Sequence[str]) -> list[str]:
    """Return the first lines, with at least one of each sign."""
    shown = list(changes[:SHOWN_LINES])
    sides = {line[0] for line in shown}
    missing = next((line for line in changes[SHOWN_LINES:] if line[0] not in sides), None)
    return shown if missing is None else [*shown[:-1], missing]


def _window(old: str | None, new: str | None) -> int:
    """Return the index at which to start showing two lines, so that their difference is visible."""
    pairs = enumerate(zip(old or "", new or "", strict=False))
    same = next((at for at, pair in pairs if pair[0] != pair[1]), 0)
    return max(0, same - SHOWN_WIDTH // 4) if same > SHOWN_WIDTH // 2 else 0


def _cut(line: str, begin: int) -> str:
    return brief(f"…{line[begin:]}" if begin else line, SHOWN_WIDTH)
