"""Prepares a heavy tool (a model, a connection) once, before its first call."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from agent_magics.dispatch.pool import run_on_thread
from agent_magics.protocol.errors import AgentMagicsError, RespondToModel, error_text


class Preparation:
    """Runs a tool's `init` once before its first call, also where several calls arrive at a time.

    If it fails, the next call tries again.
    """

    def __init__(self, init: Callable[[], Any]) -> None:
        self._init = init
        self._lock = threading.Lock()
        self._made = False
        self._value: object = None

    def __reduce__(self) -> Any:  # locks and loaded models are not copied
        return Preparation, (self._init,)

    def _make(self) -> object:
        with self._lock:
            if not self._made:
                self._value = self._init()
                self._made = True
            return self._value

    async def value(self, name: str) -> Any:
        """Return the result of `init`, which runs on a thread of our pool.

        Raises:
            RespondToModel: it raised.
        """
        if self._made:
            return self._value
        try:
            return await run_on_thread(self._make)
        except (AgentMagicsError, asyncio.CancelledError):
            raise
        except BaseException as error:
            message = f"{name} was not run: getting it ready raised {error_text(error)}"
            raise RespondToModel(message) from error
