"""Imports what the SDK is needed for, late and in a thread: half a second of work.

With Python's own settings the loop would hardly go on meanwhile: it would get the interpreter
every 5 ms, and 300,000 new objects set off collections of all there is, which nothing interrupts.
"""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

_SWITCH_INTERVAL = 0.0002  # seconds
_LINK = "agent_magics.backends.mcp.link"
_lock = threading.Lock()  # the settings are the process's: one at a time may change them


def load_link() -> ModuleType:
    """Return the module of connections; from any thread but the loop's.

    Raises:
        ImportError: the SDK is not there, or not of version 2.
    """
    with _lock:
        if _LINK in sys.modules:
            return sys.modules[_LINK]
        with _loop_first():
            from agent_magics.backends.mcp import link  # noqa: PLC0415 - imports the SDK
    return link


def load_oauth() -> ModuleType:
    """Return the module of logins; as `load_link`."""
    load_link()
    from agent_magics.backends.mcp import oauth  # noqa: PLC0415 - imports the SDK

    return oauth


@contextmanager
def _loop_first() -> Iterator[None]:
    interval, collects = sys.getswitchinterval(), gc.isenabled()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.disable()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        if collects:
            gc.enable()
