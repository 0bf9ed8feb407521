"""Bounds what a server may ask at a time, since the SDK begins a task for each request."""

from typing import Any

import mcp_types as types

from agent_magics.exec.servers import LogRing

MOST_UNANSWERED = 1_000  # requests of one server


class Unanswered:
    """The requests of a server that wait for an answer; more are neither kept nor answered.

    Args:
        log: of the server; it is told once, until there is room again.
    """

    def __init__(self, log: LogRing) -> None:
        self._log = log
        self._ids = set[str]()
        self._is_full = False

    def admits(self, message: Any) -> bool:
        """Note a message from the server; return whether it is passed on."""
        if isinstance(message, types.JSONRPCNotification):
            if message.method == "notifications/cancelled" and message.params:
                self._ids.discard(str(message.params.get("requestId")))
            return True
        if not isinstance(message, types.JSONRPCRequest):
            return True
        number = str(message.id)
        if len(self._ids) < MOST_UNANSWERED and number not in self._ids:
            self._ids.add(number)
            return True
        if not self._is_full:
            self._is_full = True
            self._log.note(
                f"requests are dropped: more than {MOST_UNANSWERED:,} of them wait, or two have "
                "the same id"
            )
        return False

    def answered(self, message: Any) -> None:
        """Note a message to the server."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._ids.discard(str(message.id))
            self._is_full = False
