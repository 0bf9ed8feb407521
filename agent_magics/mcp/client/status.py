"""Tracks one server's state, notifies those who wait for a change, and describes it."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agent_magics.mcp.server_secrets import Redactor
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.mcp import McpServerConfig, McpServerState, McpStatus
from agent_magics.text.typed import as_typed

_WAITING = (McpStatus.STARTING, McpStatus.RESTARTING)
_STARTING = "is still starting."
_NOT_RUNNING = {
    McpStatus.STOPPED: "is not running.",
    McpStatus.DISABLED: "is disabled; the person can enable it.",
}
# Seconds before a server that failed is tried again: first, doubled with each failure, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 300.0
_LOG = logging.getLogger("agent_magics")


class Standing:
    """The state of one server; changed on the event loop only, except by `announce`.

    Attributes:
        state: replaced as a whole, so that every thread may read it.
    """

    def __init__(
        self,
        config: McpServerConfig,
        redact: Redactor,
        changed: Callable[[McpServerState], None],
    ) -> None:
        self._config = config
        self._redact = redact
        self._changed = changed
        self.forget_failures()
        self._changed_event = asyncio.Event()  # replaced with every change
        status = McpStatus.STOPPED if config.enabled else McpStatus.DISABLED
        self.state = McpServerState(config, status, self.sentence(_NOT_RUNNING[status]))

    @property
    def status(self) -> McpStatus:
        """Its status."""
        return self.state.status

    @property
    def may_be_back(self) -> bool:
        """Whether it failed a while ago, and may be there again: what an address leads to changes
        by itself.
        """
        failed = self.status is McpStatus.FAILED and self._config.url is not None
        return failed and time.monotonic() >= self._again_at

    def forget_failures(self) -> None:
        """Let its next failure be told in any case, and be followed by a short pause."""
        self._pause, self._again_at, self._told = _FIRST_PAUSE, 0.0, ""

    def announce(self) -> bool:
        """Set the state to starting, if it is to be started; from any thread."""
        if self.status is not McpStatus.STOPPED and not self.may_be_back:
            return False
        message = self.sentence(_STARTING)
        self.state = replace(self.state, status=McpStatus.STARTING, message=message)
        return True

    def begin(self) -> None:
        """Set the state to starting."""
        self.become(McpStatus.STARTING, _STARTING)

    def rest(self, status: McpStatus) -> None:
        """Set the state of a server that was stopped on request."""
        self.become(status, _NOT_RUNNING[status])

    def want_login(self) -> None:
        """Set the state of a server that requires a login."""
        self.become(McpStatus.NEEDS_LOGIN, self._wants_login())

    def become(self, status: McpStatus, predicate: str = "", **more: Any) -> None:
        """Set a new state with a sentence about it, and notify everybody.

        Those who do not wait for a change are told no failure twice, nor that a server is tried
        again whose failure they know.
        """
        if status is not McpStatus.READY and status not in _WAITING:
            more = {"tools": (), "left_out": (), **more}
        message = self._redact(self.sentence(predicate)) if predicate else ""
        self.state = replace(self.state, status=status, message=message, **more)
        event, self._changed_event = self._changed_event, asyncio.Event()
        event.set()
        if status is McpStatus.READY:
            self.forget_failures()
        elif status is McpStatus.FAILED:
            self._again_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        if self._told and (status is McpStatus.STARTING or message == self._told):
            return
        if status is McpStatus.FAILED:
            self._told = message
        try:
            self._changed(self.state)
        except Exception:
            _LOG.exception("telling of MCP server %r failed", self._config.name)

    async def change(self) -> None:
        """Wait for the next change."""
        await self._changed_event.wait()

    async def ready(self) -> McpServerState:
        """Wait until it has started, at most for its start-up time limit.

        Raises:
            RespondToModel: it is not ready; the sentence says why.
        """
        limit = self._config.startup_timeout_sec
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self.status in _WAITING:
                    await self.change()
        if self.status in _WAITING:
            late = f"did not start within {limit:g} s (startup_timeout_sec); it may still come."
            raise RespondToModel(self.sentence(late))
        if self.status is not McpStatus.READY:
            raise RespondToModel(self.state.message)
        return self.state

    def sentence(self, predicate: str) -> str:
        """Return a sentence about it."""
        return f"The MCP server {self._config.name!r} {predicate}"

    def login_sentence(self) -> str:
        """Return what the person has to do to log in."""
        return self.sentence(self._wants_login())

    def _wants_login(self) -> str:
        if variable := self._config.bearer_token_env_var:
            return f"refused the token in {variable}: put a valid one there."
        login = f"%agent mcp login {as_typed(self._config.name)}"
        return f"wants a login: the person has to run {login}."
