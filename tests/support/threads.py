"""Looks at the threads of the process of the tests."""

import threading

_POOLS = ("asyncio_", "agent-tool")


def lasting_threads() -> set[threading.Thread]:
    """Return the threads but those of pools, which start and end with the work of any test."""
    return {each for each in threading.enumerate() if not each.name.startswith(_POOLS)}
