"""Looks at the descriptors that the process of the tests has open."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

_FOLDER = "/proc/self/fd"
_LIMIT = 20.0  # seconds; only what is lost stays so long


def opened() -> dict[str, str]:
    """Return the descriptors that are open, each with what it is of."""
    found = {}
    for number in os.listdir(_FOLDER):
        try:
            found[number] = os.readlink(f"{_FOLDER}/{number}")
        except FileNotFoundError:  # the one of this listing
            continue
        except OSError as error:  # its path is too long, for example
            found[number] = str(error)
    return found


@contextmanager
def none_left(most: int = 0) -> Iterator[None]:
    """Fail if the block leaves more than `most` descriptors open that were not open before.

    Threads that earlier tests started, such as the one that looks for old records, open some for a
    moment: those are waited for.
    """
    before = opened()
    yield
    deadline = time.monotonic() + _LIMIT
    while len(left := {n: of for n, of in opened().items() if n not in before}) > most:
        assert time.monotonic() < deadline, f"left open: {left}"
        time.sleep(0.01)
