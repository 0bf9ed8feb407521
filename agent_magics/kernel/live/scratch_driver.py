"""The program of a scratch process: IPython behind two named pipes, run in the sandbox.

There are no sockets, which a sandbox may forbid, so it is no ipykernel: a request is a line of JSON
followed by pickled values, an answer a length and JSON. The kernel does not trust the answers: it
takes only text and images from them. `tools.code.scratch_process` is the other end.
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
from html import escape
from pathlib import Path
from typing import Any, BinaryIO

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from agent_magics.kernel.live.displayed import (
    KeptText,
    describe_error,
    ends_quietly,
    in_brief,
    read_display,
)
from agent_magics.protocol.errors import typed_message

_LENGTH = struct.Struct("!I")
_READ_SIZE = 1 << 16
# Written into the output pipe to find out when everything before it has been read.
_MARK = b"\0" + os.urandom(16) + b"\0"
_DRAIN_LIMIT = 5.0


class Channel:
    """The pipe to the kernel; thread-safe."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._kept = KeptText()

    def send(self, **message: Any) -> None:
        """Send one message."""
        data = json.dumps(message).encode("ascii")
        with self._lock:
            self._file.write(_LENGTH.pack(len(data)) + data)
            self._file.flush()

    def say(self, text: str) -> None:
        """Send printed text; beyond the limit of a run it is kept until its end."""
        with self._lock:
            shown = self._kept.add(text)
        if shown:
            self.send(text=shown)

    def end_run(self) -> None:
        """Send what was kept of the run's text until now."""
        with self._lock:
            rest, self._kept = self._kept.rest, KeptText()
        if rest:
            self.send(text=rest)


_PERSONS = {"__name__": "__main__", "loads": pickle.loads}


class Printed:
    """Reads the output of this process and its children in one order, and sends it on."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        reading, self._writing = os.pipe()
        for descriptor in (1, 2):
            os.dup2(self._writing, descriptor)
        self._drained = threading.Event()
        self._ends_line = True
        threading.Thread(target=self._read, args=(reading,), daemon=True).start()

    def bind(self) -> None:
        """Make its pipes Python's stdout and stderr, whatever earlier code has replaced them by."""
        self._ends_line = True
        for name, stream in (("stdout", _stream(1)), ("stderr", _stream(2))):
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def drain(self) -> None:
        """Wait until all text printed so far has been sent."""
        self._drained.clear()
        os.write(self._writing, _MARK)
        self._drained.wait(_DRAIN_LIMIT)

    def line(self, text: str) -> None:
        """Print text on a line of its own, after all text printed so far."""
        self.drain()
        self._channel.say(text + "\n" if self._ends_line else f"\n{text}\n")
        self._ends_line = True

    def _read(self, reading: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        unread = b""
        while data := os.read(reading, _READ_SIZE):
            *whole, rest = (unread + data).split(_MARK)
            for part in whole:
                self._send(decoder.decode(part))
                self._drained.set()
            # A possible beginning of a mark is kept until the rest of it arrives.
            kept = next((n for n in range(len(_MARK) - 1, 0, -1) if rest.endswith(_MARK[:n])), 0)
            unread = rest[len(rest) - kept :] if kept else b""
            self._send(decoder.decode(rest[: len(rest) - kept]))

    def _send(self, text: str) -> None:
        if text:
            self._ends_line = text.endswith("\n")
            self._channel.say(text)


def _stream(descriptor: int) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115 - a number
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)


class Display:
    """The shell's display hook and publisher: sends text and images to the kernel."""

    is_publishing = False

    def __init__(self, shell: Any, channel: Channel, printed: Printed) -> None:
        self._shell, self._channel, self._printed = shell, channel, printed
        self.quiet = False

    def __call__(self, value: Any = None) -> None:
        """Show the value of a last expression."""
        if value is not None and not self.quiet:
            data, _ = self._shell.display_formatter.format(value)
            self.publish(in_brief(value, data)[0])

    def publish(self, data: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Send a display bundle."""
        shown = read_display(data)
        if shown.mime:
            self._printed.line(f"[figure: {shown.plain or shown.mime}]")
            self._channel.send(mime=shown.mime, image=shown.image, plain=shown.plain)
        elif shown.plain:
            self._printed.line(shown.plain)

    def clear_output(self, wait: bool = False) -> None:
        """Do nothing: the turn keeps what was shown."""

    def register_hook(self, hook: Any) -> None:
        """Do nothing: there are no hooks here."""

    def unregister_hook(self, hook: Any) -> None:
        """Do nothing: there are no hooks here."""


class Driver:
    """Runs the requested cells, one after the other."""

    def __init__(self, requests: BinaryIO, channel: Channel) -> None:
        self._requests = requests
        self._channel = channel
        self._running = False
        signal.signal(signal.SIGINT, self._on_interrupt)
        self._printed = Printed(channel)
        self._printed.bind()
        shell: Any = InteractiveShell.instance(config=_config())  # some parts are replaced below
        self._shell = shell
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
            self._channel.end_run()
            self._channel.send(end=error, failed=failed)

    def _take_values(self, sizes: dict[str, int]) -> dict[str, str]:
        """Bind the passed values; return the errors of unpicklable ones, by name."""
        failed = {}
        for name, size in sizes.items():
            data = self._requests.read(size)
            try:
                # With the person's module paths: classes may come from modules of the workspace.
                self._shell.user_ns[name] = eval("loads(data)", {**_PERSONS, "data": data})
            except Exception as error:
                failed[name] = typed_message(error)
        return failed

    def _run(self, code: str) -> str:
        """Run a cell and return its error as text."""
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
        """Run ``!command``; its output is part of the cell's."""
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
    """Give matplotlib and fontconfig a folder of their own, as the person's are not writable."""
    own = folder / "matplotlib"
    own.mkdir(exist_ok=True)
    person_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    for fonts in person_cache.glob("fontlist-*.json"):  # else matplotlib searches all fonts again
        with suppress(OSError):
            shutil.copy(fonts, own)
    os.environ["MPLCONFIGDIR"] = str(own)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    # A relative name: fontconfig looks for it in its own folder.
    theirs = os.environ.get("FONTCONFIG_FILE") or "fonts.conf"
    places = f"<include>{escape(theirs)}</include><cachedir>{escape(str(own))}</cachedir>"
    with suppress(OSError, UnicodeError):  # plots work without, but fontconfig complains
        (own / "fonts.conf").write_text(f"<fontconfig>{places}</fontconfig>", encoding="utf-8")
        os.environ["FONTCONFIG_FILE"] = str(own / "fonts.conf")


def main(requests: str, answers: str) -> None:
    """Serve the kernel through two named pipes.

    Args:
        requests: the pipe that the kernel writes.
        answers: the pipe that the kernel reads.
    """
    _prepare_plots(Path(requests).parent)
    with Path(requests).open("rb") as reading, Path(answers).open("wb") as writing:
        Driver(reading, Channel(writing)).serve()
