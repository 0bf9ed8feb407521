"""Runs code in a scratch process, apart from the kernel: one process for each conversation.

The process starts at the first call, keeps its variables from call to call, and ends with the
conversation.
"""

import io
import pickle
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from agent_magics.dispatch.context import ToolContext
from agent_magics.dispatch.turn import LiveResult
from agent_magics.exec.processes import ProcessManager
from agent_magics.files.locks import thread_lock
from agent_magics.protocol.errors import RespondToModel, typed_message
from agent_magics.tools.code.scratch_process import ScratchProcess
from agent_magics.tools.commands.confinement import confinement_for
from agent_magics.tools.commands.unreadable import find_unreadable

# Bytes of all values that one call passes; they are copied twice on the way.
MOST_PASSED = 256 * 1024 * 1024


class _Kept:
    """The scratch process of one conversation; runs one call at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: ScratchProcess | None = None


_kept: "WeakKeyDictionary[ProcessManager, _Kept]" = WeakKeyDictionary()
_kept_lock = thread_lock()


def run_in_scratch(
    code: str, values: Mapping[str, bytes], timeout: float, ctx: ToolContext
) -> LiveResult:
    """Run `code` in the conversation's scratch process; blocks the calling thread.

    Args:
        code: Python source of one cell.
        values: pickled values by variable name, bound before the code runs.
        timeout: seconds until the code is interrupted.
        ctx: the call.

    Raises:
        RespondToModel: the process has died or was killed, or values cannot be unpickled there.
    """
    with _kept_lock:
        kept = _kept.setdefault(ctx.processes, _Kept())
    confinement = confinement_for(ctx)
    with kept.lock:
        process, note = kept.process, ""
        if process is not None and not process.process.ended:
            forbidden = find_unreadable(ctx.turn.read_rules()).places
            if not process.is_confined_as(confinement, forbidden):
                process.process.end("kill")
                note = "the sandbox's settings have changed"
        elif process is not None:
            note = "the one before has ended"
        if process is None or note:
            process = kept.process = ScratchProcess(ctx, confinement)
        result = process.run(code, values, timeout, ctx)
    if note:
        note_of_new = f"[A new scratch process: {note}; variables of earlier calls are not there.]"
        result = replace(result, notes=(*result.notes, note_of_new))
    return result


def pack(names: Sequence[str], find: Callable[[str], Any]) -> dict[str, bytes]:
    """Pickle the named values for `run_in_scratch`; called on the thread that owns them.

    Args:
        names: variables, or stored results such as ``@r7``, which are bound as ``_r7``.
        find: returns the value of a name.

    Raises:
        RespondToModel: a value cannot be pickled, or they are too large together.
    """
    packed: dict[str, bytes] = {}
    room = MOST_PASSED
    for name in names:
        file = _BoundedBuffer(room)
        value = find(name)
        try:
            pickle.Pickler(file, protocol=5).dump(value)
        except _TooLarge:
            raise RespondToModel(
                f"values: with {name} they are more than {MOST_PASSED >> 20} MB, the most that is "
                "copied to scratch; pass a part of it, or write it to a file in the workspace."
            ) from None
        except Exception as error:
            raise RespondToModel(
                f"values: {name} cannot be copied to scratch ({typed_message(error)})."
            ) from error
        packed[name.replace("@", "_")] = file.getvalue()
        room -= len(packed[name.replace("@", "_")])
    return packed


class _TooLarge(Exception):
    pass


class _BoundedBuffer(io.BytesIO):
    """A byte buffer that raises `_TooLarge` above a maximal size."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room

    def write(self, data: Any) -> int:
        self._room -= memoryview(data).nbytes
        if self._room < 0:
            raise _TooLarge
        return super().write(data)
