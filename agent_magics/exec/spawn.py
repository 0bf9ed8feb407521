"""Sends one command to the launcher: encodes the request, creates its channels, awaits its
start.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import struct
import termios

from agent_magics.exec.launcher.wire import (
    Failed,
    SpawnRequest,
    Started,
    decode_reply,
    encode_request,
    receive_message,
)
from agent_magics.exec.launcher_process import ANSWER_LIMIT
from agent_magics.exec.process import Channels
from agent_magics.exec.pump import SUPERVISOR_GONE
from agent_magics.protocol.errors import RespondToModel, clause

_WORD_LIMIT = 5.0  # seconds from the beginning of a supervisor's message to its end
_MOST_REQUEST = 32 << 20  # bytes of a command with its environment; Linux takes 6 MiB at most
_TOO_LONG = "The command is too long for the system; put the data into a file."
_EXEC_REASONS = {
    errno.EACCES: "cannot be run: it is not an executable file that you may use.",
    errno.EPERM: "cannot be run: it is not an executable file that you may use.",
    errno.ENOEXEC: "cannot be run: it is neither a program nor a script with a #! line.",
}


def encode(request: SpawnRequest) -> bytes:
    """Encode the request for sending.

    Raises:
        RespondToModel: its command is empty or invalid.
    """
    if not request.argv or not request.argv[0]:
        raise RespondToModel("The command is empty; give the program and its arguments as a list.")
    try:
        size = sum(map(len, map(os.fsencode, (*request.argv, request.cwd))))
    except UnicodeEncodeError:
        size = -1
    if size < 0 or "\0" in "".join((*request.argv, request.cwd)):
        raise RespondToModel(
            "The command has a NUL character or a half character in it; remove it."
        )
    if size > _MOST_REQUEST:
        raise RespondToModel(_TOO_LONG)
    return encode_request(request)


def make_channels(
    request: SpawnRequest, size: tuple[int, int], stdin: bool, sent_ends: contextlib.ExitStack
) -> tuple[Channels, list[int]]:
    """Create our channels and the descriptors to send, which `sent_ends` closes.

    Args:
        request: the command.
        size: rows and columns of its terminal, if it gets one.
        stdin: without a terminal: create a pipe to write to.
        sent_ends: closes the sent descriptors when it exits.

    Raises:
        RespondToModel: the folder does not exist, or no descriptors are left.
    """
    try:
        control, sent_control = socket.socketpair()
        sent_ends.callback(sent_control.close)
        channels = Channels(control, tty=request.tty)
        with contextlib.ExitStack() as failing:
            failing.callback(channels.close)
            folder = _open_folder(request.cwd)
            sent_ends.callback(os.close, folder)
            if request.tty:
                streams = _make_terminal(channels, size, sent_ends)
            else:
                streams = _make_pipes(channels, stdin, sent_ends)
            failing.pop_all()
    except OSError as error:
        raise RespondToModel(f"The command could not be started: {clause(error)}.") from None
    return channels, [sent_control.fileno(), folder, *streams]


def _open_folder(folder: str) -> int:
    try:
        # O_PATH needs no right to read; macOS has none.
        return os.open(folder, getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise RespondToModel(
            f"The folder {folder!r} to run in does not exist or is not a folder."
        ) from None


def _make_terminal(
    channels: Channels, size: tuple[int, int], sent_ends: contextlib.ExitStack
) -> list[int]:
    own_end, terminal = os.openpty()
    sent_ends.callback(os.close, terminal)
    channels.outputs[own_end] = "stdout"
    os.set_blocking(own_end, False)
    channels.input = os.dup(own_end)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))
    return [terminal] * 3


def _make_pipes(channels: Channels, stdin: bool, sent_ends: contextlib.ExitStack) -> list[int]:
    if stdin:
        command_input, channels.input = os.pipe()
        os.set_blocking(channels.input, False)
    else:
        command_input = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    sent_ends.callback(os.close, command_input)
    streams = [command_input]
    for name in ("stdout", "stderr"):
        own_end, writer = os.pipe()
        sent_ends.callback(os.close, writer)
        channels.outputs[own_end] = name
        os.set_blocking(own_end, False)
        streams.append(writer)
    return streams


class PlacesMoved(RespondToModel):
    """What a confinement names stands elsewhere now: a new one may fit."""


def wait_for_start(request: SpawnRequest, channels: Channels) -> int:
    """Return the process id of the program, once it runs.

    Raises:
        RespondToModel: it does not run; the sentence says why.
    """
    channels.control.settimeout(ANSWER_LIMIT)
    try:
        data, _ = receive_message(channels.control)
    except TimeoutError:
        raise RespondToModel(
            f"The command was not started within {ANSWER_LIMIT:.0f} s; nothing of it goes on. "
            "Try again when the machine is less busy."
        ) from None
    except OSError:
        data = b""
    if not data:
        raise RespondToModel(
            f"{SUPERVISOR_GONE} This command may have begun; look at what it has done before you "
            "run it again."
        )
    reply = decode_reply(data)
    if isinstance(reply, Started):
        channels.control.settimeout(_WORD_LIMIT)
        return reply.pid
    assert isinstance(reply, Failed)  # Ended follows only Started
    if (reply.stage, reply.errno) == ("confine", errno.ESTALE):
        raise PlacesMoved(
            "Files or folders were moved while the sandbox was set up, so nothing was run: call "
            "again when they are at rest."
        )
    raise RespondToModel(_why_not_started(request, reply))


def _why_not_started(request: SpawnRequest, failed: Failed) -> str:
    program = request.argv[0]
    if failed.stage == "confine":
        return f"The sandbox could not be set up, so nothing was run: {failed.message}."
    if failed.stage == "cwd":
        return f"The folder {request.cwd!r} to run in cannot be entered: {failed.message}."
    if failed.stage != "exec":
        return f"The command could not be started: {failed.message}."
    if failed.errno == errno.E2BIG:
        return _TOO_LONG
    if failed.errno == errno.ENOENT and "interpreter" in failed.message:
        return f"{program!r} cannot run: the interpreter that its first line names is not there."
    if failed.errno == errno.ENOENT or _is_nowhere(request):
        return f"Command not found: {program!r}. Check the name, or whether it is installed."
    return f"{program!r} " + _EXEC_REASONS.get(failed.errno, f"cannot be run: {failed.message}.")


def _is_nowhere(request: SpawnRequest) -> bool:
    """Tell whether no folder of PATH has the program; an unsearchable folder gives EACCES too."""
    program = request.argv[0]
    return "/" not in program and not shutil.which(program, os.F_OK, request.env.get("PATH"))
