"""Defines the messages between the kernel process, the launcher and the supervisors.

They use stream sockets, because a message may exceed a packet: four bytes of length, then JSON.
File descriptors are attached to the first byte. Both ends are this package in one version, so there
is no negotiation.
"""

import array
import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

# Requests of the kernel process on a command's control socket, one byte each. EOF means that the
# kernel process is gone: everything is killed.
INTERRUPT = b"I"  # SIGINT to the foreground group
TERMINATE = b"T"  # SIGTERM to every process of the tree, SIGKILL after the grace period
KILL = b"K"  # SIGKILL to every process of the tree, at once

_LENGTH = struct.Struct("!I")
_MOST_FDS = 8
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # macOS has none


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a command may access. Paths are absolute and symlink-free.

    Attributes:
        tier: 1 is Landlock, seccomp and user notification; 2 adds namespaces.
        writable: folders (or files) below which it may write.
        protected: files and folders inside `writable` that stay read-only in tier 2; tier 1 cannot
            enforce them, the kernel process's tripwire restores them. They may not exist.
        hidden: files and folders it may not even read. In tier 1 those below `writable` stay
            readable (Landlock can grant, not deny).
        network: TCP to ports 80 and 443 and name look-ups, never to this machine; else no network.
        workspace: folders in which it may read what comes later, also beside what is hidden; only
            tier 2 can do that.
    """

    tier: int
    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: bool = False
    workspace: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """One command to start. Attached descriptors: control, folder, stdin, stdout, stderr.

    Attributes:
        argv: program and arguments; the program is looked up in PATH of `env`.
        cwd: the folder as text, for tier 2, which enters it again through its own mounts.
        env: the whole environment.
        tty: whether stdin is a terminal that becomes the controlling one.
        confinement: None runs it supervised but unconfined.
        limits: RLIMIT name -> value, such as {"RLIMIT_FSIZE": 1 << 33}.
        grace: seconds between SIGTERM and SIGKILL.
        most_processes: maximal number of simultaneous processes, beyond which all are killed; 0 is
            no limit.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    tty: bool = False
    confinement: Confinement | None = None
    limits: dict[str, int] = field(default_factory=dict)
    grace: float = 0.2
    most_processes: int = 0


# Replies of a supervisor: exactly one Started or Failed, after Started exactly one Ended.


@dataclass(frozen=True, slots=True)
class Started:
    """The program runs."""

    pid: int


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing was run. `stage` is "exec", "cwd", "confine" or "launcher"."""

    stage: str
    errno: int
    message: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The main process has ended, and so have all processes it left behind.

    Attributes:
        status: as in `subprocess`: negative is the signal that ended it.
        leftovers: number of background processes that were killed.
        refused: operations that the supervisor denied, such as "connect 127.0.0.1:22",
            "chmod /etc/passwd", "kill 4711"; at most 20, each once.
    """

    status: int
    leftovers: int = 0
    refused: tuple[str, ...] = ()


Reply = Started | Failed | Ended
_REPLIES = {kind.__name__: kind for kind in (Started, Failed, Ended)}


def encode_request(request: SpawnRequest) -> bytes:
    """Encode `request` as JSON text."""
    # Surrogates (undecodable bytes of file names) survive as escapes.
    return json.dumps(request, default=_fields_of).encode("ascii")


def _fields_of(message: Any) -> dict[str, Any]:
    # Not `asdict`, which copies: this is on the path of every command.
    return {name: getattr(message, name) for name in message.__slots__}


def decode_request(data: bytes) -> SpawnRequest:
    """Decode a request encoded by `encode_request`."""
    fields: dict[str, Any] = json.loads(data)
    confinement = fields["confinement"]
    if confinement is not None:
        tuples: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in confinement.items()
        }
        fields["confinement"] = Confinement(**tuples)
    return SpawnRequest(**{**fields, "argv": tuple(fields["argv"])})


def encode_reply(reply: Reply) -> bytes:
    """Encode `reply` as JSON text."""
    return json.dumps([type(reply).__name__, reply], default=_fields_of).encode("ascii")


def decode_reply(data: bytes) -> Reply:
    """Decode a reply encoded by `encode_reply`."""
    name, fields = json.loads(data)
    if "refused" in fields:
        fields["refused"] = tuple(fields["refused"])
    return _REPLIES[name](**fields)


def send_message(connection: socket.socket, data: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message, with descriptors.

    Raises:
        OSError: the other end is gone.
    """
    framed = _LENGTH.pack(len(data)) + data
    sent = socket.send_fds(connection, [framed], fds) if fds else connection.send(framed)
    if sent < len(framed):
        connection.sendall(framed[sent:])


def receive_message(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Receive one message and its descriptors (close-on-exec); (b"", []) when the other end closed.

    Raises:
        OSError: the connection broke within a message.
    """
    fds = array.array("i")
    head = b""
    while len(head) < _LENGTH.size:
        space = socket.CMSG_SPACE(_MOST_FDS * fds.itemsize)
        piece, ancillary, _, _ = connection.recvmsg(_LENGTH.size - len(head), space, _CLOSE_ON_EXEC)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if not _CLOSE_ON_EXEC:
            for fd in fds:
                os.set_inheritable(fd, False)
        if not piece:
            return b"", list(fds)
        head += piece
    return _receive_exactly(connection, _LENGTH.unpack(head)[0]), list(fds)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise OSError("the other end closed in the middle of a message")
        view = view[count:]
    return bytes(data)
