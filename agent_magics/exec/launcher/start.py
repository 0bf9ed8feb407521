"""Prepares a command's process between fork and exec, and confines it.

If any step fails, nothing is run, and the supervisor receives the step and the reason.
"""

import errno
import fcntl
import os
import resource
import signal
import socket
import termios
import warnings  # noqa: F401 - os.execvpe imports it, and nothing may be imported that late
from typing import NoReturn

from agent_magics.exec.launcher import confine, linux
from agent_magics.exec.launcher.wire import (
    Failed,
    SpawnRequest,
    decode_request,
    encode_reply,
    receive_message,
)

# Sent when the process is confined (`confine.give_listener`) or need not be. It is followed by a
# Failed or, with the exec, by the end of the channel.
READY = b"R"

# Signals ignored by Python (SIGPIPE, SIGXFSZ), by the launcher (SIGINT), and perhaps by Jupyter's
# parent (SIGHUP). Determined once, since it takes as long as a fork.
_IGNORED = {signal.SIGINT} | {
    number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN
}

_NOT_RUN = 127  # as in a shell for a command that cannot be run; not used


def start_program(channel: socket.socket, parent: int) -> NoReturn:
    """Wait for a request on `channel`, and turn this process into its program.

    Args:
        channel: socket to the supervisor, on which a request comes, with the descriptors of the
            folder, stdin, stdout and stderr.
        parent: process id of the supervisor.
    """
    stage, request = "launcher", None
    try:
        linux.die_with_parent(parent, signal.SIGKILL)
        # Ahead of the request. A session of its own: Jupyter interrupts with killpg, and a terminal
        # needs a session's leader. Where the system schedules sessions as groups, a new one waits
        # for its turn.
        os.setsid()
        _reset_signals()
        data, (folder, *streams) = receive_message(channel)
        request = decode_request(data)
        stage = "confine"
        prepared = confine.prepare(request.confinement) if request.confinement else None
        stage = "launcher"
        _take_streams(streams, request.tty)
        linux.close_on_exec(3)
        stage = "cwd"
        os.fchdir(folder)
        stage = "confine"
        _confine(prepared, request, folder, channel)
        stage = "launcher"
        # Last, because a limit on processes or memory could make the steps above fail.
        _set_limits(request.limits)
        stage = "exec"
        os.execvpe(request.argv[0], request.argv, request.env)
    except BaseException as error:
        if stage == "exec" and request is not None and isinstance(error, OSError):
            failure = _exec_failure(request, error)
        else:
            failure = failure_of(stage, error)
        channel.sendall(encode_reply(failure))
    finally:
        os._exit(_NOT_RUN)


def _take_streams(streams: list[int], tty: bool) -> None:
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    if tty:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _reset_signals() -> None:
    # Signals with a handler are reset by exec.
    for number in _IGNORED:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)


def _confine(
    prepared: confine.Prepared | None, request: SpawnRequest, folder: int, channel: socket.socket
) -> None:
    if prepared is None or request.confinement is None:
        channel.sendall(READY)
        return
    listener = confine.enter(prepared, request, folder)
    confine.give_listener(channel, READY, listener, request.confinement.network)


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        number = getattr(resource, name)
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(number, (value, value))


def failure_of(stage: str, error: BaseException) -> Failed:
    """Return the message for the kernel process about an exception."""
    number = error.errno if isinstance(error, OSError) else None
    return Failed(stage, number or errno.EINVAL, f"{type(error).__name__}: {error}")


def _exec_failure(request: SpawnRequest, error: OSError) -> Failed:
    number = error.errno or errno.EINVAL
    message = os.strerror(number)
    if number == errno.ENOENT and _program_exists(request):
        message = "the interpreter that its first line names does not exist"
    return Failed("exec", number, message)


def _program_exists(request: SpawnRequest) -> bool:
    name = request.argv[0]
    folders = [""] if "/" in name else os.get_exec_path(request.env)
    return any(os.path.isfile(os.path.join(folder, name)) for folder in folders)
