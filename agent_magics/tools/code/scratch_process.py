"""One scratch process as the kernel sees it: started in the sandbox, asked, interrupted, ended.

Values go there pickled; what comes back is text and pictures and never unpickled, for the process
may have become anything. `kernel.scratch_driver` is the other end.
"""

import base64
import binascii
import json
import os
import select
import stat
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_magics.backends.exec.process import Process
from agent_magics.backends.launcher.wire import Confinement
from agent_magics.dispatch.context import LiveResult, ToolContext
from agent_magics.dispatch.pool import POOL
from agent_magics.protocol.errors import RespondToModel
from agent_magics.protocol.events import ExecCommandOutputDelta, LiveOutput
from agent_magics.tools.confined import (
    ProtectedFiles,
    environment_for,
    explain_denial,
)

# What the process may send in one message, and in one run: pictures, mostly.
_MOST_MESSAGE, _MOST_SENT = 32 * 1024 * 1024, 64 * 1024 * 1024
_MOST_IMAGES = 20
_LONGEST_CAPTION = 200
# Characters that are taken of one run, and of an error; the driver sends less, if it is still ours.
_MOST_TEXT, _LONGEST_ERROR = 2_000_000, 200_000
# How pictures begin: https://www.w3.org/TR/png/ (5.2), ISO/IEC 10918-1 (SOI).
_PICTURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}

_START_LIMIT = 60.0  # seconds until IPython is there, on a machine that is busy
_GRACE = 2.0  # seconds code has to end after an interrupt; at the end of a turn, less
_SHORT_GRACE = 0.3
_KILL_LIMIT = 5.0
_TICK = 0.05
_READ_SIZE = 1 << 20
_LENGTH = struct.Struct("!I")

# The program stands on the kernel's floor, which knows IPython; it is named, not imported. It finds
# modules where the kernel does.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from agent_magics.kernel.scratch_driver import main; main(*sys.argv[2:])"
)
_GONE = "its variables are gone, and the next call starts with none"


@dataclass(frozen=True, slots=True)
class _Refused:
    """Code's failure in the words in which a command's would be looked at for a refusal."""

    output: str
    exit_code: int = 1
    refused: tuple[str, ...] = ()


@dataclass(slots=True)
class _Answer:
    """What a run has sent so far."""

    context: ToolContext
    pieces: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None
    room: int = _MOST_TEXT

    def take(self, message: dict[str, Any]) -> None:
        """Take a message; what is in none of the known forms is left out."""
        text, image = message.get("text"), message.get("image")
        if isinstance(text, str):
            text = _clean(text, self.room)
            if text:
                self.room -= len(text)
                self.pieces.append(text)
                self.context.emit(ExecCommandOutputDelta, text=text)
        elif isinstance(image, str) and _is_picture(message.get("mime"), image):
            if len(self.images) < _MOST_IMAGES:
                kind = message["mime"]
                plain = _clean(message.get("plain") or "[figure]", _LONGEST_CAPTION)
                self.images.append(f"data:{kind};base64,{image}")
                self.context.emit(LiveOutput, data={kind: image, "text/plain": plain})
        elif "end" in message:
            self.end = message

    @property
    def text(self) -> str:
        """What was printed and displayed."""
        dropped = self.end and self.end.get("dropped")
        return "".join(self.pieces) + (
            f"\n… {dropped} characters left out …" if isinstance(dropped, int) and dropped else ""
        )


def _clean(value: Any, longest: int) -> str:
    """Return text that can be sent on, whatever a message held in its place."""
    return str(value)[:longest].encode("utf-8", "replace").decode()


def _is_picture(kind: Any, encoded: str) -> bool:
    begin = _PICTURES.get(kind) if isinstance(kind, str) else None
    try:
        return begin is not None and base64.b64decode(encoded, validate=True).startswith(begin)
    except (binascii.Error, ValueError):
        return False


class _Died(Exception):
    """The process has ended, or has to."""


class ScratchProcess:
    """One scratch process: started, asked, interrupted, ended.

    Args:
        ctx: the call that needs it.
        confinement: what it may touch; None lets it run free.
    """

    def __init__(self, ctx: ToolContext, confinement: Confinement | None) -> None:
        self.confinement = confinement
        self._protected = ProtectedFiles(ctx, confinement)
        self._tell_later = ctx.turn.tell_later
        folder = Path(tempfile.mkdtemp(prefix="python-", dir=ctx.processes.tmpdir))
        self._requests = _named_pipe(folder / "requests", os.O_RDWR)
        self._answers = _named_pipe(folder / "answers", os.O_RDONLY)
        self._received = bytearray()
        self._is_ready = False
        self._lock = threading.Lock()  # held while the pipes are in use
        environment = environment_for(ctx, confinement)
        try:
            self.process: Process = ctx.processes.start(
                [
                    *(sys.executable, "-c", _PROGRAM, json.dumps(sys.path)),
                    *(str(folder / "requests"), str(folder / "answers")),
                ],
                cwd=ctx.cwd,
                env={**environment, "IPYTHONDIR": str(folder)},
                confinement=confinement,
            )
        except BaseException:
            self._protected.finish()
            self._close()
            raise
        self.process.on_end(lambda _: POOL.submit(self._finish))

    def is_confined_as(self, confinement: Confinement | None) -> bool:
        """Tell whether it may touch what a new one could, as far as the person has a say in it."""
        return _rights(self.confinement) == _rights(confinement)

    def run(
        self, code: str, values: Mapping[str, bytes], timeout: float, ctx: ToolContext
    ) -> LiveResult:
        """Run `code` with `values`, pickled, bound in its namespace.

        Raises:
            RespondToModel: it took too long and did not stop, or the process has died.
        """
        answer = _Answer(ctx)
        sizes = {name: len(data) for name, data in values.items()}
        request = json.dumps({"code": code, "values": sizes}).encode("ascii") + b"\n"
        try:
            with self._lock:
                self._await_start(ctx)
                self._write([request, *values.values()], ctx)
                error = self._collect(answer, timeout, ctx)
        except _Died as died:
            self.kill()
            raise RespondToModel(f"{answer.text}\n{died}".lstrip()) from None
        return self._result(answer, error, ctx)

    def _result(self, answer: _Answer, error: str, ctx: ToolContext) -> LiveResult:
        assert answer.end is not None
        failed = answer.end.get("failed")
        if isinstance(failed, dict) and failed:
            told = _clean("; ".join(f"{k} ({why})" for k, why in failed.items()), _LONGEST_ERROR)
            raise RespondToModel(
                f"The code was not run, since these values cannot be read in scratch: {told}. "
                "Pass plain data or tables; classes and functions of the notebook are not there."
            )
        error = error or _clean(answer.end.get("end") or "", _LONGEST_ERROR)
        notes = [self._protected.check()]
        denial = explain_denial(_Refused(error), self.confinement, ctx.cwd) if error else None
        if denial is not None:
            notes.append(
                f"[The sandbox refused {denial.what}. Scratch code writes in the workspace and in "
                "its folder for temporary files; shell can ask for more.]"
            )
        images = tuple(answer.images)
        return LiveResult(answer.text, images, error, tuple(filter(None, notes)))

    # -- what goes over the pipes ------------------------------------------------------------------

    def _await_start(self, ctx: ToolContext) -> None:
        deadline = time.monotonic() + _START_LIMIT
        while not self._is_ready:
            self._check(ctx, deadline, "The scratch process did not start")
            for message in self._receive():
                self._is_ready |= message.get("ready") is True

    def _check(self, ctx: ToolContext, deadline: float, what: str) -> None:
        """Raise where waiting has no more sense."""
        if self.process.ended:
            raise _Died(self._last_words())
        if ctx.cancelled.is_set():
            raise _Died("It was interrupted.")
        if time.monotonic() > deadline:
            raise _Died(f"{what} in {_START_LIMIT:.0f} s.")

    def _write(self, pieces: Sequence[bytes], ctx: ToolContext) -> None:
        for piece in pieces:
            left = memoryview(piece)
            moved = time.monotonic()
            while left:
                self._check(ctx, moved + _START_LIMIT, "The scratch process read nothing")
                if _is_ready(self._requests, select.POLLOUT):
                    with suppress(BlockingIOError):
                        left = left[os.write(self._requests, left[:_READ_SIZE]) :]
                        moved = time.monotonic()

    def _collect(self, answer: _Answer, timeout: float, ctx: ToolContext) -> str:
        """Take what comes until the run has ended; return that it took too long, or ""."""
        stopped, sent, deadline = "", 0, time.monotonic() + timeout
        while answer.end is None:
            for message in self._receive():
                sent += sum(len(part) for part in message.values() if isinstance(part, str))
                answer.take(message)
            if sent > _MOST_SENT:
                raise _Died(f"The code displayed more than {_MOST_SENT >> 20} MB and was ended.")
            if answer.end is not None:
                break
            if self.process.ended:
                raise _Died(self._last_words())
            if ctx.cancelled.is_set() and stopped != "interrupted":
                stopped, deadline = "interrupted", time.monotonic() + _SHORT_GRACE
                self.process.interrupt()
            elif time.monotonic() > deadline:
                if stopped:
                    raise _Died(f"The code did not end when it was {stopped}: killed, {_GONE}.")
                stopped, deadline = f"stopped after {timeout:g} s", time.monotonic() + _GRACE
                self.process.interrupt()
        if stopped and answer.end.get("end"):
            return f"The code was {stopped} (timeout_ms); variables are as it left them."
        return ""

    def _receive(self) -> list[dict[str, Any]]:
        """Return the messages that have come, after at most a tick."""
        if not _is_ready(self._answers, select.POLLIN):
            return []
        with suppress(BlockingIOError):
            data = os.read(self._answers, _READ_SIZE)
            if not data:  # it has not opened its end yet, or has closed it
                self.process.wait(_TICK)
            self._received += data
        messages = []
        while len(self._received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._received)
            if size > _MOST_MESSAGE:
                raise _Died(f"The code displayed more than {_MOST_MESSAGE >> 20} MB at once.")
            end = _LENGTH.size + size
            if len(self._received) < end:
                break
            messages.append(_read_message(bytes(self._received[_LENGTH.size : end])))
            del self._received[:end]
        return messages

    # -- its end -----------------------------------------------------------------------------------

    def kill(self) -> None:
        """End it with all that it has started."""
        self.process.kill("kill")
        if not self.process.wait(_KILL_LIMIT):
            self.process.give_up()

    def _last_words(self) -> str:
        process = self.process
        code = "" if process.exit_code is None else f" (exit code {process.exit_code})"
        said = process.output.text().strip()[-2_000:]
        told = f"The scratch process has ended{code}: {_GONE}."
        return f"{told}\n{said}" if said else told

    def _finish(self) -> None:
        with self._lock:
            self._close()
        note = self._protected.finish()
        if note:
            self._tell_later(f"Scratch python: {note}")

    def _close(self) -> None:
        for descriptor in (self._requests, self._answers):
            with suppress(OSError):
                os.close(descriptor)


def _is_ready(descriptor: int, event: int) -> bool:
    """Wait at most a tick until there is something to read, or room to write."""
    poll = select.poll()  # `select` knows no descriptors above 1023
    poll.register(descriptor, event)
    return bool(poll.poll(_TICK * 1000))


def _named_pipe(path: Path, flags: int) -> int:
    """Make a named pipe and open our end; what another process may have put there is refused."""
    os.mkfifo(path, 0o600)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RespondToModel("The scratch process could not be started; call again.")
    return descriptor


def _read_message(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise _Died("The scratch process sent what cannot be read, and was ended.")
    return message


def _rights(confinement: Confinement | None) -> Any:
    if confinement is None:
        return None
    return confinement.tier, confinement.writable, confinement.network
