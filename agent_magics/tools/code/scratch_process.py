"""Runs one scratch process from the kernel's side: start in the sandbox, run code, interrupt, end.

Values are sent pickled; answers are text and images and are never unpickled, since the code in the
process may have changed it at will. `kernel.live.scratch_driver` is the other end.
"""

import base64
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
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.pool import POOL
from agent_magics.dispatch.turn import LiveResult
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.output import clean_output
from agent_magics.exec.process import Process
from agent_magics.files.trusted_imports import is_trusted
from agent_magics.protocol.errors import RespondToModel, clause, short_message
from agent_magics.protocol.events import ExecCommandOutputDelta, LiveOutput
from agent_magics.protocol.items import json_object
from agent_magics.tools.commands.confinement import ProtectedFiles, environment_for, explain_output
from agent_magics.tools.commands.unreadable import rules_not_kept

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
_TICK = 0.05
_READ_SIZE = 1 << 20
_LENGTH = struct.Struct("!I")

# The program stands in kernel/, which knows IPython; it is named, not imported. It finds
# itself where no command writes, and then modules where the kernel does.
_PROGRAM = (
    "import json, sys; paths = json.loads(sys.argv[1]); sys.path[:] = paths['trusted']; "
    "from agent_magics.kernel.live.scratch_driver import main; sys.path[:] = paths['all']; "
    "main(*sys.argv[2:])"
)
_ROOT = str(Path(__file__).parents[3])  # the folder that the package is in
_GONE = "its variables are gone, and the next call starts with none"


@dataclass(slots=True)
class _RunMessages:
    """The messages of one run so far."""

    context: ToolContext
    pieces: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None
    room: int = _MOST_TEXT

    def take(self, message: dict[str, Any]) -> None:
        """Add a message; one of unknown form is ignored."""
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
        """The printed and displayed text, as a terminal would show it last."""
        return clean_output("".join(self.pieces))


def _clean(value: object, longest: int) -> str:
    """Convert a value of an untrusted message to valid UTF-8 text, at most `longest` characters."""
    return str(value)[:longest].encode("utf-8", "replace").decode()


def _is_picture(kind: object, encoded: str) -> bool:
    begin = _PICTURES.get(kind) if isinstance(kind, str) else None
    try:
        return begin is not None and base64.b64decode(encoded, validate=True).startswith(begin)
    except ValueError:
        return False


def _module_paths() -> dict[str, list[str]]:
    """Return the module search paths: trusted ones for the driver, all of them for the code."""
    return {"trusted": [*filter(is_trusted, sys.path), _ROOT], "all": sys.path}


class _Died(Exception):
    """The process has ended, or has to be ended."""


class ScratchProcess:
    """One scratch process: started, sent code, interrupted, ended.

    Args:
        ctx: the call that needs it.
        confinement: the sandbox's rules; None runs it without a sandbox.
    """

    def __init__(self, ctx: ToolContext, confinement: Confinement | None) -> None:
        self.confinement = confinement
        self._notify_later = ctx.turn.tell_later
        self._received = bytearray()
        self._is_ready = False
        self._lock = threading.Lock()  # held while it is used
        self._pipes = ExitStack()
        self._protected = ProtectedFiles(ctx, confinement)
        try:
            self.process = self._start(ctx)
        except BaseException:
            self._protected.finish()
            self._pipes.close()
            raise
        self.process.on_end(lambda _: POOL.submit(self._finish))

    def _start(self, ctx: ToolContext) -> Process:
        try:
            folder = Path(tempfile.mkdtemp(prefix="python-", dir=ctx.processes.tmpdir))
            requests, answers = folder / "requests", folder / "answers"
            self._requests = _named_pipe(requests, os.O_RDWR)
            self._pipes.callback(os.close, self._requests)
            self._answers = _named_pipe(answers, os.O_RDONLY)
            self._pipes.callback(os.close, self._answers)
        except OSError as error:
            why = clause(error)
            raise RespondToModel(f"The scratch process could not be started: {why}.") from None
        return ctx.processes.start(
            [
                *(sys.executable, "-I", "-c", _PROGRAM, json.dumps(_module_paths())),
                *(str(requests), str(answers)),
            ],
            cwd=ctx.cwd,
            env={**environment_for(ctx, self.confinement), "IPYTHONDIR": str(folder)},
            confinement=self.confinement,
        )

    def is_confined_as(self, confinement: Confinement | None, forbidden: Sequence[str]) -> bool:
        """Return whether its rights equal those of `confinement`, so that it can be used again.

        Args:
            confinement: what the next call needs.
            forbidden: what rules forbid to read by now; as much of it as can be is hidden.
        """
        if confinement is None or self.confinement is None:
            return confinement is self.confinement
        hidden = set(forbidden).intersection(confinement.hidden)
        is_hidden = confinement.tier < 2 or hidden <= set(self.confinement.hidden)
        return is_hidden and _rights(self.confinement) == _rights(confinement)

    def run(
        self, code: str, values: Mapping[str, bytes], timeout: float, ctx: ToolContext
    ) -> LiveResult:
        """Run `code` with `values` bound in its namespace.

        Args:
            code: Python source of one cell.
            values: pickled values by variable name.
            timeout: seconds until the code is interrupted.
            ctx: the call.

        Raises:
            RespondToModel: it exceeded the time limit and did not stop, or the process has died.
        """
        with self._lock:
            self._protected.enter_call()
            try:
                answer, error = self._run(code, values, timeout, ctx)
            except BaseException:
                if note := self._protected.check():
                    ctx.turn.tell_later(f"Scratch python: {note}")
                raise
            return self._result(answer, error, self._protected.check(), ctx)

    def _run(
        self, code: str, values: Mapping[str, bytes], timeout: float, ctx: ToolContext
    ) -> tuple[_RunMessages, str]:
        """Return what the code sent, and its error, or ""."""
        answer = _RunMessages(ctx)
        sizes = {name: len(data) for name, data in values.items()}
        request = json.dumps({"code": code, "values": sizes}).encode("ascii") + b"\n"
        try:
            self._await_start(ctx)
            self._write([request, *values.values()], ctx)
            error = self._collect(answer, timeout, ctx)
        except _Died as died:
            self.process.end("kill")
            raise RespondToModel(f"{answer.text}\n{short_message(died)}".lstrip()) from None
        assert answer.end is not None
        failed = answer.end.get("failed")
        if isinstance(failed, dict) and failed:
            errors = _clean("; ".join(f"{k} ({why})" for k, why in failed.items()), _LONGEST_ERROR)
            raise RespondToModel(
                f"The code was not run, since these values cannot be read in scratch: {errors}. "
                "Pass plain data or tables; classes and functions of the notebook are not there."
            )
        return answer, error or _clean(answer.end.get("end") or "", _LONGEST_ERROR)

    def _result(self, answer: _RunMessages, error: str, note: str, ctx: ToolContext) -> LiveResult:
        notes = [note, rules_not_kept(ctx, self.confinement)]
        confined = self.confinement
        denial = explain_output(error, confined, ctx.cwd) if error and confined else None
        if denial is not None:
            notes.append(
                f"[{denial.seen} Scratch code writes in the workspace and in "
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
        """Raise `_Died` if the process ended, the call was interrupted or the deadline passed."""
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

    def _collect(self, answer: _RunMessages, timeout: float, ctx: ToolContext) -> str:
        """Collect messages until the run has ended; return why it was stopped early, or ""."""
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
        """Return the messages that have arrived, after waiting one tick at most."""
        if not _is_ready(self._answers, select.POLLIN):
            return []
        with suppress(BlockingIOError):
            data = os.read(self._answers, _READ_SIZE)
            if not data:  # the process has not opened its end yet, or has closed it
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

    def _last_words(self) -> str:
        process = self.process
        code = "" if process.exit_code is None else f" (exit code {process.exit_code})"
        printed = process.output.text().strip()[-2_000:]
        sentence = f"The scratch process has ended{code}: {_GONE}."
        return f"{sentence}\n{printed}" if printed else sentence

    def _finish(self) -> None:
        with self._lock:
            self._pipes.close()
            note = self._protected.finish()
        if note:
            self._notify_later(f"Scratch python: {note}")


def _is_ready(descriptor: int, event: int) -> bool:
    """Wait one tick at most until a descriptor is readable or writable."""
    poll = select.poll()  # `select` knows no descriptors above 1023
    poll.register(descriptor, event)
    return bool(poll.poll(_TICK * 1000))


def _named_pipe(path: Path, flags: int) -> int:
    """Create a named pipe and open our end; refuse anything else that was put in its place."""
    os.mkfifo(path, 0o600)
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RespondToModel("The scratch process could not be started; call again.")
    return descriptor


def _read_message(data: bytes) -> dict[str, object]:
    message = json_object(data)
    if message is None:
        raise _Died("The scratch process sent what cannot be read, and was ended.")
    return message


def _rights(confinement: Confinement) -> tuple[object, ...]:
    return confinement.tier, confinement.writable, confinement.network
