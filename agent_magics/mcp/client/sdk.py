"""Imports the MCP SDK late and in a thread, since it takes half a second.

With Python's default settings the event loop would nearly stop meanwhile: it would get the
interpreter every 5 ms, and 300,000 new objects would trigger uninterruptible collections of all
objects.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from agent_magics.files.locks import thread_lock

_SWITCH_INTERVAL = 0.0002  # seconds
_LINK = "agent_magics.mcp.client.connection"
_lock = thread_lock()  # the settings are global to the process


def load_link() -> ModuleType:
    """Import the module `connection`; callable from any thread except the event loop's.

    Raises:
        ImportError: the SDK is not installed, or is not version 2.
    """
    with _lock:
        if _LINK in sys.modules:
            return sys.modules[_LINK]
        with _loop_first():
            from agent_magics.mcp.client import connection as link  # noqa: PLC0415 - imports the SDK
    return link


def load_oauth() -> ModuleType:
    """Import the module of logins; see `load_link`."""
    load_link()
    from agent_magics.mcp.transports import oauth  # noqa: PLC0415 - imports the SDK

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
