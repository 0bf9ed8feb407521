"""Captures text and displays of live code, so that the cell shows them as part of the turn."""

import io
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from threading import Lock
from time import monotonic
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.person_code import marks_own_code
from agent_magics.dispatch.results.values import plain_text
from agent_magics.dispatch.stages.stored_outputs import refer
from agent_magics.engine.foreground.waiting import SERVING, Foreground
from agent_magics.exec.output import clean_output
from agent_magics.kernel.live.displayed import KeptText, ends_quietly, in_brief, read_display
from agent_magics.kernel.live.frames import with_tables
from agent_magics.protocol.events import ExecCommandOutputDelta, LiveOutput
from agent_magics.render.blocks.frames import TABLE, DisplayedTable

_INTERVAL = 0.05
MOST_TABLES = 10  # of one run; the rest is text alone
_DEEPEST = 10

# An interrupt while we draw stops the run; the drawing is finished first.
marks_own_code(Foreground.draw_meanwhile)


# The runs of live code that what runs now belongs to. While one awaits something in the background,
# the person runs cells on the same thread.
_AROUND: ContextVar[tuple["Capture", ...]] = ContextVar("around", default=())


def is_of_person() -> bool:
    """Tell whether what runs now is a cell of the person, and no part of live code."""
    return not _AROUND.get() and threading.current_thread() is threading.main_thread()


class Capture:
    """The text and displays of one run of live code, in order."""

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._kept = KeptText()
        self._unsent: list[str] = []
        self._sent_at = 0.0
        self._lock = Lock()
        self._tables_left = MOST_TABLES
        self.images: list[str] = []
        self.notes: list[str] = []
        self.outside: tuple[Any, ...] = ()

    @property
    def text(self) -> str:
        """The printed and displayed text, as a terminal would show it last."""
        with self._lock:
            return clean_output(self._kept.text)

    @property
    def is_here(self) -> bool:
        """Whether what runs now belongs to this run; threads that it has started do."""
        is_main = threading.current_thread() is threading.main_thread()
        return self in _AROUND.get() or not is_main

    def write(self, text: str) -> None:
        """Add printed text; from any thread."""
        text = plain_text(text)
        with self._lock:
            self._unsent.append(self._kept.add(text))
            due = monotonic() - self._sent_at > _INTERVAL
        if due:
            self.flush()

    def flush(self) -> None:
        """Show the text printed since the last time."""
        with self._lock:
            text, self._unsent = "".join(self._unsent), []
            self._sent_at = monotonic()
        if not text:
            return
        self._context.emit(ExecCommandOutputDelta, text=text)
        foreground = SERVING.get()
        if foreground is not None:  # the thread that draws is the one that runs the code
            with self.suspended():
                foreground.draw_meanwhile()

    def display(self, data: Mapping[str, Any]) -> None:
        """Add a displayed value: text for the model, images for both, a table for the person."""
        plain, mime, image = read_display(data)
        table = data.get(TABLE)
        if self._tables_left and isinstance(table, DisplayedTable):
            self._tables_left -= 1
            self._context.emit(LiveOutput, data={TABLE: dict(table), "text/plain": plain})
        if not mime:
            if plain:
                self._separate()
                self.write(plain + "\n")
            return
        self.images.append(f"data:{mime};base64,{image}")
        self._separate()
        self.write(f"[figure: {plain or mime}]\n")
        self._context.emit(LiveOutput, data={mime: image, "text/plain": plain or "[figure]"})

    def refer(self, value: Any, *, was_cut: bool = False) -> None:
        """Store the value of a last expression as a result where it is more than its text."""
        try:
            note = refer(value, self._context, was_cut=was_cut)
        except Exception:  # a value whose size cannot be read is shown all the same
            return
        if note:
            self.notes.append(note)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore the cell's own outputs inside this context, for a question or a person's tool."""
        inside = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self.outside
        try:
            yield
        finally:
            sys.stdout, sys.stderr = inside

    def _separate(self) -> None:
        if not self._kept.ends_line:
            self.write("\n")


_open: list[Capture] = []
# How many streams whose code has ended are writing to each other.
_depth: ContextVar[int] = ContextVar("depth", default=0)


def uncaptured() -> AbstractContextManager[None]:
    """Suspend the capture, if live code is running, to show something to the person."""
    return _open[-1].suspended() if _open else nullcontext()


class _CapturedStream(io.TextIOBase):
    """stdout or stderr of live code; when that has ended, what stands in its place then.

    Code keeps its streams, for example in the handlers of `logging`.
    """

    encoding = "utf-8"

    def __init__(self, capture: Capture, name: str, outside: Any) -> None:
        self._capture: Capture | None = capture
        self._name = name
        self._outside = outside

    def end(self) -> None:
        """Write outside from now on."""
        self._capture = None

    def write(self, text: str) -> int:
        capture = self._capture  # other threads may write while it ends
        if capture is not None and capture.is_here:
            capture.write(str(text))
        else:
            self._pass_on("write", str(text))
        return len(text)

    def flush(self) -> None:
        capture = self._capture
        if capture is not None and capture.is_here:
            capture.flush()
        else:
            self._pass_on("flush")

    def set_parent(self, parent: Any) -> None:
        """Tell the stream outside which cell of the person prints from now on."""
        capture = self._capture
        set_parent = getattr(self._outside, "set_parent", None)
        if set_parent is not None and not (capture is not None and capture.is_here):
            set_parent(parent)

    def close(self) -> None:
        """Do nothing: what stands in its place later is not to be closed."""

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return False

    def _pass_on(self, method: str, *arguments: str) -> None:
        """Call the same method of `sys.stdout` or `sys.stderr`, or of the one before the run.

        That of now may be this one, or write to it; where streams write to each other in a ring,
        the text is lost.
        """
        depth = _depth.get()
        stream = self._outside if depth else getattr(sys, self._name)
        if stream is None or depth > _DEEPEST:  # there is none without a terminal
            return
        token = _depth.set(depth + 1)
        try:
            getattr(stream, method)(*arguments)
        finally:
            _depth.reset(token)


class _DisplayHook:
    """Shows the value of a last expression without changing `_`, `Out` and the execution count."""

    def __init__(self, shell: Any, capture: Capture, quiet: bool, outside: Any) -> None:
        self._shell, self._capture, self._quiet = shell, capture, quiet
        self._outside = outside

    def __call__(self, value: Any = None) -> None:
        if not self._capture.is_here:
            self._outside(value)
            return
        if value is None or self._quiet:
            return
        data, _ = self._shell.display_formatter.format(value)
        data, was_cut = in_brief(value, data)
        # Objects that display themselves (ipython_display) return no data.
        self._capture.display(data)
        self._capture.refer(value, was_cut=was_cut)


class _DisplayPublisher:
    """A display publisher that passes bundles of live code to the capture.

    What live code asks beside that is not done: the turn keeps what was shown, and hooks stay with
    the real publisher.
    """

    is_publishing = False

    def __init__(self, capture: Capture, outside: Any) -> None:
        self._capture = capture
        self._outside = outside

    def publish(self, data: Mapping[str, Any], *args: Any, **kwargs: Any) -> None:
        if self._capture.is_here:
            self._capture.display(data)
        else:
            self._outside.publish(data, *args, **kwargs)

    def clear_output(self, wait: bool = False) -> None:
        if not self._capture.is_here:
            self._outside.clear_output(wait)

    def set_parent(self, parent: Any) -> None:
        if not self._capture.is_here:
            self._outside.set_parent(parent)

    def register_hook(self, hook: Any) -> None:
        if not self._capture.is_here:
            self._outside.register_hook(hook)

    def unregister_hook(self, hook: Any) -> None:
        if not self._capture.is_here:
            self._outside.unregister_hook(hook)


@contextmanager
def _paged(shell: Any, capture: Capture) -> Iterator[None]:
    """Display what a pager would show, and leave the person's page and next cell alone."""

    def show(data: Any, start: int = 0, screen_lines: int = 0) -> None:
        if not capture.is_here:
            pager(data, start, screen_lines)
            return
        text = data.get("text/plain", "") if isinstance(data, Mapping) else data
        capture.display({"text/plain": clean_output(str(text))})

    pager, payloads = shell.hooks.show_in_pager, shell.payload_manager
    before = [*payloads.read_payload()]
    shell.hooks.show_in_pager = show
    try:
        yield
    finally:
        shell.hooks.show_in_pager = pager
        added = [each for each in payloads.read_payload() if each not in before]
        payloads.clear_payload()
        for payload in before:
            payloads.write_payload(payload, single=False)
        if added:
            kinds = ", ".join(sorted({str(each.get("source")) for each in added}))
            capture.notes.append(f"[Not done: {kinds}; code cannot act on the person's page.]")


@contextmanager
def captured(shell: Any, code: str, context: ToolContext) -> Iterator[Capture]:
    """Redirect what `code` prints and displays to a `Capture`, and restore the shell afterwards."""
    capture = Capture(context)
    saved = (sys.stdout, sys.stderr, sys.displayhook, shell.display_pub, shell.display_trap.hook)
    hook = _DisplayHook(shell, capture, ends_quietly(code), shell.display_trap.hook)
    # Live code may run a cell that runs live code: questions are asked outside of all of it.
    capture.outside = _open[0].outside if _open else saved[:2]
    _open.append(capture)
    streams = [
        _CapturedStream(capture, name, outside)
        for name, outside in zip(("stdout", "stderr"), capture.outside, strict=True)
    ]
    sys.stdout, sys.stderr = streams
    sys.displayhook = shell.display_trap.hook = hook
    shell.display_pub = _DisplayPublisher(capture, shell.display_pub)
    around = _AROUND.set((*_AROUND.get(), capture))
    try:
        with with_tables(shell.display_formatter, lambda: capture.is_here), _paged(shell, capture):
            yield capture
    finally:
        with suppress(ValueError):  # a task that was left ends in another context
            _AROUND.reset(around)
        _open.remove(capture)
        sys.stdout, sys.stderr, sys.displayhook, shell.display_pub, shell.display_trap.hook = saved
        for stream in streams:
            stream.end()
        capture.flush()
