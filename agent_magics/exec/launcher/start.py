"""What a command's process does between its fork and its exec: it takes its place, confined or not.

Nothing is run when any step fails: the supervisor is told which one and why.
"""

import errno
import fcntl
import os
import resource
import signal
import socket
import termios
from typing import NoReturn

from agent_magics.backends.launcher import confine, linux
from agent_magics.backends.launcher.wire import Failed, SpawnRequest, encode_reply

# Said when the process is confined (`confine.give_listener`) or need not be. After it comes either
# a Failed or, with the exec, the end of the channel.
READY = b"R"

# Python ignores SIGPIPE and SIGXFSZ, the launcher SIGINT, whoever started Jupyter maybe SIGHUP.
# Looked up once: it takes as long as a fork.
_IGNORED = {signal.SIGINT} | {
    number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN
}

_NOT_RUN = 127  # as a shell says that it could not run something; nobody reads it


def start_program(
    request: SpawnRequest,
    prepared: confine.Prepared | None,
    channel: socket.socket,
    files: list[int],
    parent: int,
) -> NoReturn:
    """Become the program of `request`.

    Args:
        request: what to run.
        prepared: what `confine.prepare` made of its confinement; None without one.
        channel: to the supervisor.
        files: descriptors of the folder, stdin, stdout and stderr.
        parent: process id of the supervisor.
    """
    stage = "launcher"
    try:
        folder, *streams = files
        linux.die_with_parent(parent, signal.SIGKILL)
        _take_streams(streams, request.tty)
        _reset_signals()
        linux.close_on_exec(3)
        stage = "cwd"
        os.fchdir(folder)
        stage = "confine"
        _confine(prepared, request, folder, channel)
        stage = "launcher"
        # Last, because a limit on processes or memory would hit the steps above.
        _set_limits(request.limits)
        stage = "exec"
        os.execvpe(request.argv[0], request.argv, request.env)
    except BaseException as error:
        if stage == "exec" and isinstance(error, OSError):
            failure = _exec_failure(request, error)
        else:
            failure = failure_of(stage, error)
        channel.sendall(encode_reply(failure))
    finally:
        os._exit(_NOT_RUN)


def _take_streams(streams: list[int], tty: bool) -> None:
    # A session of its own: Jupyter interrupts with killpg, and a terminal needs a session's leader.
    os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    if tty:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _reset_signals() -> None:
    # What has a handler is reset by the exec.
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
    """Return what the kernel is told of an exception."""
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
