"""Runs the engine's thread with its one asyncio loop; made at first use, one for the process."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from agent_magics.protocol.errors import FatalError


class EngineThread:
    """A daemon thread that runs an asyncio loop for ever.

    It goes on while the person's code holds the main thread, and between cells.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.forked = False
        self._thread = threading.Thread(target=self._run, name="agent-engine", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            # Who awaits a task whose code calls `sys.exit()` gets that; asyncio raises it here too.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
                return

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Schedule `function` on the loop; from any thread.

        Raises:
            FatalError: this process is a fork, in which the thread does not run.
        """
        self.check()
        if self.is_current():
            self.loop.call_soon(function, *arguments)
        else:
            self.loop.call_soon_threadsafe(function, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Start `coroutine` on the loop; from any thread.

        Raises:
            FatalError: this process is a fork, in which the thread does not run.
        """
        try:
            self.check()
        except FatalError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def is_current(self) -> bool:
        """Return whether the caller runs on this thread."""
        return threading.get_ident() == self._thread.ident

    def check(self) -> None:
        """Check that the thread runs in this process.

        Raises:
            FatalError: it does not; see `post`.
        """
        if self.forked:
            raise FatalError(
                "The engine does not survive a fork: start a new Agent in this child process."
            )


_engine: EngineThread | None = None
_lock = threading.Lock()


def shared_engine() -> EngineThread:
    """Return the process's engine, started at the first call."""
    global _engine
    with _lock:
        if _engine is None:
            _engine = EngineThread()
        return _engine


def _mark_forked() -> None:
    """Mark the engine as missing in a forked child: old agents raise, new ones start another."""
    global _engine, _lock
    _lock = threading.Lock()
    if _engine is not None:
        _engine.forked = True
        _engine = None


os.register_at_fork(after_in_child=_mark_forked)
