"""Selects our stored files that are old, counted in days on which any of them was written.

Calendar days would not do: a clock that is a month ahead would make all of them old at once.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress


def old_ones(paths: Iterable[str], days: int) -> list[str]:
    """Return the files that were last written before the newest `days` days with any write.

    Args:
        paths: the files.
        days: number of distinct days of last writes to keep.
    """
    written: dict[str, tuple[int, ...]] = {}
    for path in paths:
        with suppress(OSError):
            written[path] = time.localtime(os.stat(path).st_mtime)[:3]
    kept = sorted(set(written.values()))[-days:]
    return [path for path, day in written.items() if day not in kept]
