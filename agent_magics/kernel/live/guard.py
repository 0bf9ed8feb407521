"""Guards live code: starting programs, connecting and writing elsewhere need approval.

They are no sandbox: an audit hook (PEP 578) sees what Python itself does, on the thread and in the
calls of the code; not C code, other threads, or what goes on after the run. A hook cannot be
removed, so there is one for the process, which returns at once while no live code runs.
"""

import hashlib
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

from agent_magics.dispatch.consent.questions import GUARD_RAIL
from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.person_code import is_own_code
from agent_magics.engine.foreground.waiting import SERVING
from agent_magics.engine.thread import shared_engine
from agent_magics.files.beneath import is_below, real_path
from agent_magics.kernel.live.guard_events import WATCHED, Hit, Rails
from agent_magics.protocol.errors import FatalError, RespondToModel, TurnAbort, full_message

_SENTINEL = "_agent_magics_guard"
_IMPORTS = "<frozen importlib._bootstrap>"
_LIBRARIES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


class Guard:
    """The guard rails of one run of live code.

    Args:
        context: the call that runs the code.
        code: the code, to which lasting answers are bound.
        base: the frame that runs the code; frames above it are ignored.
        is_cell: returns whether a file name is that of a cell.
        uncaptured: suspends the capture while a question is asked.
        stop: called where the turn ends at a question; returns the exception that ends the code.
    """

    def __init__(
        self,
        context: ToolContext,
        code: str,
        *,
        base: CodeType,
        is_cell: Callable[[str], bool],
        uncaptured: Callable[[], AbstractContextManager[None]],
        stop: Callable[[TurnAbort | FatalError], BaseException],
    ) -> None:
        self._context = context
        self._digest = hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
        self._base = base
        self._is_cell = is_cell
        self._uncaptured = uncaptured
        self._stop = stop
        self._rails = Rails(context.config)
        roots = context.config.roots
        self._roots = [*map(str, roots), *map(real_path, roots)]
        self._thread, self._process = threading.get_ident(), os.getpid()
        self._allowed: set[str] = set()
        self._denied: dict[str, str] = {}
        self._asking = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch audit events inside this context."""
        hook = _installed()
        token = _GUARD.set(self)
        hook.running.add(self)  # a set, since runs of other threads begin and end, too
        try:
            yield
        finally:
            hook.running.discard(self)
            _GUARD.reset(token)

    def look(self, event: str, args: Sequence[object]) -> None:
        """Judge an event of `WATCHED`.

        Raises:
            PermissionError: it was not allowed.
        """
        here = threading.get_ident() == self._thread and os.getpid() == self._process
        if self._asking or not here:
            return
        self._asking = True  # judging and asking open files, too
        try:
            hit = self._rails.hit(event, args)
            if hit is None or hit.kind in self._allowed:
                return
            line = self._line_of_code(sys._getframe(2))
            if line is not None:
                self._answer(hit, line)
        finally:
            self._asking = False

    def _line_of_code(self, frame: FrameType | None) -> str | None:
        """Return the line of the model's code, or of a workspace module, that caused the event.

        None where a library does it while it is imported, or where one of our own calls is in
        between: a person's tool runs with an approval of its own.
        """
        line = None
        while frame is not None:
            code = frame.f_code
            if code is self._base:
                break
            if is_own_code(code) or (line is None and code.co_filename == _IMPORTS):
                return None
            if line is None and self._is_of_model(code.co_filename):
                line = linecache.getline(code.co_filename, frame.f_lineno).strip()
            frame = frame.f_back
        return line

    def _is_of_model(self, filename: str) -> bool:
        if self._is_cell(filename):
            return True
        is_library = any(part in filename for part in _LIBRARIES)
        return not is_library and is_below(filename, self._roots)

    def _answer(self, hit: Hit, line: str) -> None:
        """Ask once for each kind in a run: a denied operation is often tried in another way."""
        refusal = self._denied.get(hit.kind)
        if refusal is None:
            refusal = self._denied[hit.kind] = self._ask(hit, line)
        if refusal:
            raise PermissionError(f"the code {hit.what}, which was not allowed: {refusal}")
        self._allowed.add(hit.kind)

    def _ask(self, hit: Hit, line: str) -> str:
        """Ask for approval; return the reason of a denial, "" for an approval."""
        what = f"{hit.what}: {line}" if line else hit.what
        foreground = SERVING.get()
        if foreground is None:
            return "nobody can be asked here"
        fingerprint = f"guard:{hit.kind}:{self._digest}"
        asking = self._context.ask(permission=GUARD_RAIL, patterns=[what], always=[fingerprint])
        try:
            with self._uncaptured():
                foreground.block_on(shared_engine().spawn(asking))
        except RespondToModel as refusal:
            return full_message(refusal).partition(" was not run: ")[2] or full_message(refusal)
        except (TurnAbort, FatalError) as error:
            raise self._stop(error) from None
        return ""


_GUARD: ContextVar[Guard | None] = ContextVar("guard", default=None)


def _look(event: str, args: Sequence[object]) -> None:
    if event in WATCHED:
        guard = _GUARD.get()
        if guard is not None:
            guard.look(event, args)


def _installed() -> SimpleNamespace:
    """Return the state of the process's one hook, installed at the first call.

    It is kept in `sys`, so that this module, imported again, finds it.
    """
    state = getattr(sys, _SENTINEL, None)
    if state is None:
        running: set[Guard] = set()
        state = SimpleNamespace(running=running, look=_look)

        def hook(event: str, args: Sequence[Any]) -> None:
            if running:
                state.look(event, args)

        setattr(sys, _SENTINEL, state)
        sys.addaudithook(hook)
    state.look = _look
    return state
