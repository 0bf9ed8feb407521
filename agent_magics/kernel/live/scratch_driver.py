"""The program of a scratch process: IPython behind two named pipes, run in the sandbox.

No sockets, which a sandbox may forbid, so it is no ipykernel: requests come as a line of JSON with
pickled values behind it, answers go as lengths and JSON. The kernel believes none of them; all that
it takes is text and pictures. `tools.scratch_process` is the other end.
"""

import builtins
import codecs
import io
import json
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from agent_magics.kernel.displayed import (
    KEPT_CHARACTERS,
    describe_error,
    ends_quietly,
    read_display,
)

_LENGTH = struct.Struct("!I")
_READ_SIZE = 1 << 16
# Stands in the pipe of what is printed where all of it is to be read before going on.
_MARK = b"\0" + os.urandom(16) + b"\0"
_DRAIN_LIMIT = 5.0


class Channel:
    """The pipe to the kernel; every thread may send."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._room = KEPT_CHARACTERS
        self._dropped = 0

    def send(self, **message: Any) -> None:
        """Send one message."""
        data = json.dumps(message).encode("ascii")
        with self._lock:
            self._file.write(_LENGTH.pack(len(data)) + data)
            self._file.flush()

    def say(self, text: str) -> None:
        """Send what was printed, as far as there is room for it in this run."""
        shown = text[: self._room]
        self._room -= len(shown)
        self._dropped += len(text) - len(shown)
        if shown:
            self.send(text=shown)

    def take_dropped(self) -> int:
        """Return how much was not sent; the next run has room again."""
        dropped, self._dropped, self._room = self._dropped, 0, KEPT_CHARACTERS
        return dropped


class Printed:
    """Reads what this process and its children print, in one order, and sends it on."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        reading, self._writing = os.pipe()
        for descriptor in (1, 2):
            os.dup2(self._writing, descriptor)
        self._drained = threading.Event()
        self._ends_line = True
        threading.Thread(target=self._read, args=(reading,), daemon=True).start()

    def bind(self) -> None:
        """Make these the streams of Python, whatever the code before has made of them."""
        self._ends_line = True
        sys.stdout = sys.__stdout__ = _stream(1)
        sys.stderr = sys.__stderr__ = _stream(2)

    def drain(self) -> None:
        """Wait until all that was printed so far has been sent."""
        self._drained.clear()
        os.write(self._writing, _MARK)
        self._drained.wait(_DRAIN_LIMIT)

    def line(self, text: str) -> None:
        """Print a line of its own, behind all that was printed so far."""
        self.drain()
        self._channel.say(text + "\n" if self._ends_line else f"\n{text}\n")
        self._ends_line = True

    def _read(self, reading: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        begun = b""
        while data := os.read(reading, _READ_SIZE):
            *whole, rest = (begun + data).split(_MARK)
            for part in whole:
                self._send(decoder.decode(part))
                self._drained.set()
            # What may be the beginning of a mark waits for the rest of it.
            kept = next((n for n in range(len(_MARK) - 1, 0, -1) if rest.endswith(_MARK[:n])), 0)
            begun = rest[len(rest) - kept :] if kept else b""
            self._send(decoder.decode(rest[: len(rest) - kept]))

    def _send(self, text: str) -> None:
        if text:
            self._ends_line = text.endswith("\n")
            self._channel.say(text)


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115 - a number
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)


class Display:
    """The shell's display hook and publisher: text and pictures go to the kernel."""

    is_publishing = False

    def __init__(self, shell: InteractiveShell, channel: Channel, printed: Printed) -> None:
        self._shell, self._channel, self._printed = shell, channel, printed
        self.quiet = False

    def __call__(self, value: Any = None) -> None:
        """Show the value of a last expression."""
        if value is not None and not self.quiet:
            data, _ = self._shell.display_formatter.format(value)
            self.publish(data)

    def publish(self, data: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Show what code displays."""
        shown = read_display(data)
        if shown.mime:
            self._printed.line(f"[figure: {shown.plain or shown.mime}]")
            self._channel.send(mime=shown.mime, image=shown.image, plain=shown.plain)
        elif shown.plain:
            self._printed.line(shown.plain)

    def clear_output(self, wait: bool = False) -> None:
        """The turn's record keeps what was shown."""

    def register_hook(self, hook: Any) -> None:
        """There is nobody to hook into it."""

    def unregister_hook(self, hook: Any) -> None:
        """There is nobody to hook into it."""


class Driver:
    """Runs what is asked for, one cell after the other."""

    def __init__(self, requests: BinaryIO, channel: Channel) -> None:
        self._requests = requests
        self._channel = channel
        self._running = False
        signal.signal(signal.SIGINT, self._on_interrupt)
        self._printed = Printed(channel)
        self._printed.bind()
        self._shell = shell = InteractiveShell.instance(config=_config())
        self._display = Display(shell, channel, self._printed)
        shell.display_pub = self._display
        shell.system = self._system
        shell.ask_exit = _refuse_exit
        for name in ("showtraceback", "showsyntaxerror", "showindentationerror"):
            setattr(shell, name, lambda *args, **kwargs: None)
        builtins.input = _refuse_input

    def serve(self) -> None:
        """Run cells until the kernel closes its end."""
        self._channel.send(ready=True)
        while line := self._requests.readline():
            request = json.loads(line)
            failed = self._take_values(request["values"])
            error = "" if failed else self._run(request["code"])
            self._channel.send(end=error, failed=failed, dropped=self._channel.take_dropped())

    def _take_values(self, sizes: dict[str, int]) -> dict[str, str]:
        """Bind the values that were passed; return of those that could not be read why."""
        failed = {}
        for name, size in sizes.items():
            data = self._requests.read(size)
            try:
                self._shell.user_ns[name] = pickle.loads(data)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
        return failed

    def _run(self, code: str) -> str:
        """Run a cell and return its error."""
        shell, display = self._shell, self._display
        self._printed.bind()
        display.quiet = ends_quietly(code)
        sys.displayhook = shell.display_trap.hook = display
        self._running = True
        try:
            result = shell.run_cell(code, store_history=False)
        except KeyboardInterrupt as interrupt:  # between the shell's own steps
            return describe_error(shell, interrupt)
        finally:
            self._running = False
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):  # whatever the code has put there
                    stream.flush()
            self._printed.drain()
        error = result.error_before_exec or result.error_in_exec
        return "" if error is None else describe_error(shell, error)

    def _on_interrupt(self, number: int, frame: Any) -> None:
        if self._running:
            raise KeyboardInterrupt

    def _system(self, command: str) -> None:
        """Run ``!command``; it prints where everything is printed."""
        line = self._shell.var_expand(command, depth=1)
        done = subprocess.run(line, shell=True, stdin=subprocess.DEVNULL, check=False)
        self._shell.user_ns["_exit_code"] = done.returncode


def _config() -> Config:
    config = Config()
    config.HistoryManager.enabled = False  # it would write a database
    config.InteractiveShell.cache_size = 0
    return config


def _refuse_exit() -> None:
    raise RuntimeError("exit() and quit() do nothing here")


def _refuse_input(prompt: object = "") -> str:
    raise EOFError("nobody can type anything into a scratch process")


def _prepare_plots(folder: Path) -> None:
    """Give matplotlib a folder of its own, as it may not write the person's."""
    own = folder / "matplotlib"
    own.mkdir(exist_ok=True)
    theirs = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    for fonts in theirs.glob("fontlist-*.json"):  # else all fonts are looked for again
        with suppress(OSError):
            shutil.copy(fonts, own)
    os.environ["MPLCONFIGDIR"] = str(own)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"


def main(requests: str, answers: str) -> None:
    """Serve the kernel at the other ends of two named pipes.

    Args:
        requests: where it writes.
        answers: where it reads.
    """
    _prepare_plots(Path(requests).parent)
    with Path(requests).open("rb") as reading, Path(answers).open("wb") as writing:
        Driver(reading, Channel(writing)).serve()
