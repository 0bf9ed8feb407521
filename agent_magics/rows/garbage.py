"""Lets Python's garbage collector run less often while rows are asked."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from agent_magics.files.locks import thread_lock

# New objects after which Python looks; by default 700, of which twelve rows under way have more. Of
# rows nothing is garbage that only such a look finds, and it took a sixth of a row's time.
SELDOM = 100_000

_LOCK = thread_lock()
_users = 0
_before = (0, 0, 0)


@contextmanager
def collects_seldom() -> Iterator[None]:
    """Raise the collector's threshold until all maps of this process have ended.

    One that is higher, a collector that is off, and a threshold that is changed meanwhile stay.
    """
    global _users, _before  # the collector's thresholds are the process's too
    with _LOCK:
        _users += 1
        if _users == 1:
            _before = gc.get_threshold()
            if 0 < _before[0] < SELDOM:
                gc.set_threshold(SELDOM, *_before[1:])
    try:
        yield
    finally:
        with _LOCK:
            _users -= 1
            if not _users and gc.get_threshold() == (SELDOM, *_before[1:]):
                gc.set_threshold(*_before)
