"""What a heavy tool needs before its first call (a model, a connection), made once and late."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from agent_magics.dispatch.pool import run_on_thread
from agent_magics.protocol.errors import AgentMagicsError, RespondToModel


class Preparation:
    """What a tool needs before its first call, made once, however many calls come at a time.

    Where making it fails, the next call tries again.
    """

    def __init__(self, init: Callable[[], Any]) -> None:
        self._init = init
        self._lock = threading.Lock()
        self._made = False
        self._value: Any = None

    def __reduce__(self) -> Any:  # a lock and a loaded model stay where they are
        return Preparation, (self._init,)

    def _make(self) -> Any:
        with self._lock:
            if not self._made:
                self._value = self._init()
                self._made = True
            return self._value

    async def value(self, name: str) -> Any:
        """Return what `init` returned; it runs on a thread of our pool.

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
            words = f"{name} was not run: getting it ready raised {type(error).__name__}: {error}"
            raise RespondToModel(words) from error
