"""Limits how many questions one MCP server may ask during calls."""

import asyncio
from collections.abc import Awaitable, Callable

from agent_magics.dispatch.consent.decision import MOST_DENIED, MOST_OPEN
from agent_magics.protocol.ops import Answer

# Questions of one server in a turn, and those of them that wait for their turn.
MOST_ASKED, MOST_WAITING = 100, 32


class QuestionLimit:
    """Limits the questions of one server: a few at a time, none after too many or too many denials.

    Args:
        tell: called once with a sentence when further questions are refused.
        server: the server's name.
    """

    def __init__(self, warn: Callable[[str], None], server: str) -> None:
        self._warn = warn
        self._server = server
        self._open = asyncio.Semaphore(MOST_OPEN)
        self._asked = self._denied = self._waiting = 0
        self._has_warned = False

    async def put(self, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """Ask a question and return its answer; None where it was refused by the limit.

        Args:
            ask: shows the question and returns the answer.
        """
        if self._waiting >= MOST_WAITING:
            self._refuse(f"more than {MOST_WAITING} of its questions wait for an answer")
            return None
        self._waiting += 1
        try:
            async with self._open:
                return await self._put(ask)
        finally:
            self._waiting -= 1

    async def _put(self, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
        if self._denied >= MOST_DENIED:
            self._refuse(f"{MOST_DENIED} of its questions in a row were denied")
            return None
        if self._asked >= MOST_ASKED:
            self._refuse(f"it has asked {MOST_ASKED} questions")
            return None
        self._asked += 1
        answer = await ask()
        self._denied = 0 if answer.decision.startswith("approve") else self._denied + 1
        return answer

    def _refuse(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"The MCP server {self._server} is not heard any more in this turn: {why}.")
