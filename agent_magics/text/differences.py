"""Finds the lines in which two texts differ, in a time that is bounded whatever the lines are."""

import difflib
import re
from collections import Counter
from collections.abc import Sequence

# The most steps of comparing two texts by difflib: about a fifth of a second.
MOST_STEPS = 4_000_000
# Lines of the differing part that are compared line by line; a longer part is shown as replaced.
_MOST_COMPARED = 4_000
_CONTEXT = 3
_HEADER = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def changed_lines(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Return the ranges of differing lines, as (first, last, start, stop); a single range where
    finding what is equal within it would take long.
    """
    first = _common(before, after)
    end = _common(before[first:][::-1], after[first:][::-1])
    old, new = before[first : len(before) - end], after[first : len(after) - end]
    # Each block of equal lines looks at all pairs of equal lines again.
    counts = Counter(new)
    steps = (len(old) + sum(counts[line] for line in old)) * min(len(old), len(new))
    if steps > MOST_STEPS:
        return [(first, first + len(old), first, first + len(new))]
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [
        (first + i, first + j, first + k, first + m) for tag, i, j, k, m in codes if tag != "equal"
    ]


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """Return how many lines are equal at the beginning."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (old, new) in pairs if old != new), min(len(before), len(after)))


def unified_diff(before: str, after: str, old_name: str, new_name: str) -> str:
    """Return a unified diff of two texts, "" where they have the same lines."""
    hunks = hunks_of(before.splitlines(), after.splitlines())
    head = [f"--- {old_name}", f"+++ {new_name}"] if hunks else []
    return "".join(f"{line}\n" for line in (*head, *hunks))


def hunks_of(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the lines of a unified diff from its first "@@" on; nothing where there are no hunks.

    Common lines at both ends are skipped first.
    """
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    changed_a, changed_b = old[start : len(old) - end], new[start : len(new) - end]
    if len(changed_a) + len(changed_b) > _MOST_COMPARED:
        sizes = (_range(start, len(changed_a)), _range(start, len(changed_b)))
        head = "@@ -{} +{} @@".format(*sizes)
        return [head, *(f"-{line}" for line in changed_a), *(f"+{line}" for line in changed_b)]
    first, rest = max(0, start - _CONTEXT), max(0, end - _CONTEXT)
    a, b = old[first : len(old) - rest], new[first : len(new) - rest]
    lines = list(difflib.unified_diff(a, b, n=_CONTEXT, lineterm=""))[2:]
    return [_shifted(line, first) if line.startswith("@@") else line for line in lines]


def _range(start: int, length: int) -> str:
    return f"{start + 1 if length else start},{length}"


def _shifted(header: str, by: int) -> str:
    found = _HEADER.match(header)
    if found is None or not by:
        return header
    old, new = int(found[1]) + by, int(found[3]) + by
    return f"@@ -{old}{found[2] or ''} +{new}{found[4] or ''} @@"
