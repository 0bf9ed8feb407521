"""What travels between the kernel, the launcher and a command's supervisor, and in what form.

Stream sockets, because a message may be larger than a packet: four bytes of length, then JSON. File
descriptors travel with the first byte. Both ends are this package, of one version, so nothing here
is negotiated.
"""

import array
import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# What the kernel may say on a command's control socket, one byte each. Its end (EOF) means that
# the kernel is gone: everything is killed.
INTERRUPT = b"I"  # SIGINT to the foreground group
TERMINATE = b"T"  # SIGTERM to every process of the tree, SIGKILL after the grace period
KILL = b"K"  # SIGKILL to every process of the tree, at once

_LENGTH = struct.Struct("!I")
_MOST_FDS = 8
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # macOS has none


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a command may touch. Paths are absolute and symlink-free.

    Attributes:
        tier: 1 is Landlock, seccomp and user notification; 2 adds namespaces.
        writable: folders (or files) below which it may write.
        protected: files and folders inside `writable` that stay read-only in tier 2; tier 1 cannot
            hold them, the kernel's tripwire does. They may be absent.
        hidden: files and folders it may not even read. In tier 1 those below `writable` stay
            readable (Landlock grants, it does not take back).
        network: TCP to ports 80 and 443 and name look-ups, never to this machine; else no network.
    """

    tier: int
    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: bool = False


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """One command to start. With it travel the descriptors: control, folder, stdin, stdout, stderr.

    Attributes:
        argv: program and arguments; the program is looked up in PATH of `env`.
        cwd: the folder as text, for tier 2, which enters it anew through its own mounts.
        env: the whole environment.
        tty: stdin is a terminal that becomes the controlling one.
        confinement: None runs it supervised but free.
        limits: RLIMIT name -> value, such as {"RLIMIT_FSIZE": 1 << 33}.
        grace: seconds between SIGTERM and SIGKILL.
    """

    argv: tuple[str, ...]
    cwd: str
    env: dict[str, str]
    tty: bool = False
    confinement: Confinement | None = None
    limits: dict[str, int] = field(default_factory=dict)
    grace: float = 0.2


# What a supervisor says: exactly one Started or Failed, after Started exactly one Ended.


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
    """The main process has ended, and so has everything it left behind.

    Attributes:
        status: as `subprocess` counts: negative is the signal that ended it.
        leftovers: processes it had left in the background, which were killed.
        refused: what the supervisor itself refused, such as "connect 127.0.0.1:22",
            "chmod /etc/passwd", "kill 4711"; at most 20, each once.
    """

    status: int
    leftovers: int = 0
    refused: tuple[str, ...] = ()


Reply = Started | Failed | Ended
_REPLIES = {kind.__name__: kind for kind in (Started, Failed, Ended)}


def encode_request(request: SpawnRequest) -> bytes:
    """Return `request` as JSON text."""
    # Surrogates (undecodable bytes of file names) survive as escapes.
    return json.dumps(asdict(request)).encode("ascii")


def decode_request(data: bytes) -> SpawnRequest:
    """Return the request that `encode_request` encoded."""
    fields: dict[str, Any] = json.loads(data)
    confinement = fields["confinement"]
    if confinement is not None:
        tuples = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in confinement.items()
        }
        fields["confinement"] = Confinement(**tuples)
    return SpawnRequest(**{**fields, "argv": tuple(fields["argv"])})


def encode_reply(reply: Reply) -> bytes:
    """Return `reply` as JSON text."""
    # Not `asdict`, which copies: every command waits for this.
    values = {name: getattr(reply, name) for name in reply.__slots__}
    return json.dumps([type(reply).__name__, values]).encode("ascii")


def decode_reply(data: bytes) -> Reply:
    """Return the reply that `encode_reply` encoded."""
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
        OSError: the other end went away in the middle of a message.
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
