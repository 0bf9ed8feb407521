"""Sends on behalf of a command with network access, in the calls that may carry an address.

The address is behind a pointer, which the filter cannot read. So all such calls are performed here,
from a copy: an address is accepted only on a datagram socket and if it is a nameserver's;
descriptors in the message, on local sockets only, are copied too. write and send on a connection
are not forwarded.
"""

import errno
import os
import socket
import struct
from dataclasses import dataclass, field

from agent_magics.exec.launcher.notifications.question import Deferred, Refused, SystemCall
from agent_magics.exec.launcher.notifications.socket_calls import (
    LONGEST_ADDRESS,
    finish,
    host_and_port,
    is_nameserver,
    place_of,
    take_socket,
)

_MESSAGE = struct.Struct("=QIxxxxQQQQixxxx")  # struct msghdr of <linux/socket.h>
_VECTOR = struct.Struct("=QQ")  # struct iovec
_MANY_SIZE = _MESSAGE.size + 8  # struct mmsghdr: a msghdr, and how much of it was sent
_CONTROL = struct.Struct("=Qii")  # struct cmsghdr
_INT = struct.Struct("=i")
_ALIGNMENT = 8  # CMSG_ALIGN
_MOST_VECTORS = 1024  # UIO_MAXIOV
_MOST_BYTES = 1 << 18  # on a stream the next call sends the rest
_MOST_MESSAGES = 16
_MOST_CONTROL = 4096
_FLAGS = (
    socket.MSG_OOB
    | socket.MSG_DONTROUTE
    | socket.MSG_DONTWAIT
    | socket.MSG_EOR
    | socket.MSG_MORE
    | socket.MSG_NOSIGNAL
)


@dataclass(slots=True)
class _Message:
    """A copy of a message to send."""

    address: bytes
    data: bytes
    whole: bool  # False: the message exceeds the limit
    fds: list[int] = field(default_factory=list)


def send(question: SystemCall, name: str) -> int | Deferred:
    """Perform one of the calls sendto, sendmsg, sendmmsg.

    Raises:
        Refused: the address is not that of a nameserver.
        OSError: as the call itself.
    """
    connection = take_socket(question)
    try:
        if name == "sendmmsg":
            return _send_many(question, connection)
        if name == "sendto":
            message, flags = _read_plain(question), question.integer(3)
        else:
            message = _read_message(question, question.arguments[1], connection)
            flags = question.integer(2)
        question.confirm()
    except BaseException:
        connection.close()
        raise
    return _send_one(connection, message, flags)


def _read_plain(question: SystemCall) -> _Message:
    _, place, size, _, address, length = question.arguments
    data = question.read(place, min(size, _MOST_BYTES))
    return _Message(_read_address(question, address, length), data, size == len(data))


def _read_address(question: SystemCall, place: int, size: int) -> bytes:
    if not place or not size:
        return b""
    if size > LONGEST_ADDRESS:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return question.read(place, size)


def _read_message(question: SystemCall, place: int, connection: socket.socket) -> _Message:
    fields = _MESSAGE.unpack(question.read(place, _MESSAGE.size))
    name, name_size, vectors, count, control, control_size, _ = fields
    if count > _MOST_VECTORS or control_size > _MOST_CONTROL:
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
    data = bytearray()
    whole = True
    for base, size in _VECTOR.iter_unpack(question.read(vectors, count * _VECTOR.size)):
        room = _MOST_BYTES - len(data)
        data += question.read(base, min(size, room)) if size and room else b""
        whole = whole and size <= room
    message = _Message(_read_address(question, name, name_size), bytes(data), whole)
    if control and control_size:
        message.fds = _copy_descriptors(question, connection, question.read(control, control_size))
    return message


def _copy_descriptors(question: SystemCall, connection: socket.socket, control: bytes) -> list[int]:
    """Copy the descriptors in a message (SCM_RIGHTS, man 7 unix)."""
    if connection.family != socket.AF_UNIX:
        raise Refused("")  # packet options could reroute the message
    fds: list[int] = []
    try:
        while len(control) >= _CONTROL.size:
            size, level, kind = _CONTROL.unpack_from(control)
            if (level, kind) != (socket.SOL_SOCKET, socket.SCM_RIGHTS) or size < _CONTROL.size:
                raise Refused("")
            numbers = control[_CONTROL.size : size]
            whole = len(numbers) - len(numbers) % _INT.size
            for (number,) in _INT.iter_unpack(numbers[:whole]):
                fds.append(question.take(number))
            control = control[size + -size % _ALIGNMENT :]
    except BaseException:
        _close_all(fds)
        raise
    return fds


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)


def _send_one(connection: socket.socket, message: _Message, flags: int) -> int | Deferred:
    try:
        address = _judge(connection, message)
    except BaseException:
        connection.close()
        _close_all(message.fds)
        raise

    def act() -> int:
        return _send_now(connection, message, flags, address)

    wait = not flags & socket.MSG_DONTWAIT
    return finish(connection, act, lambda: _close_all(message.fds), wait=wait)


def _send_now(
    connection: socket.socket, message: _Message, flags: int, address: list[tuple[str, int]]
) -> int:
    controls = []
    if message.fds:
        descriptors = b"".join(map(_INT.pack, message.fds))
        controls.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors))
    # Other flags are dropped (MSG_FASTOPEN connects). A SIGPIPE would reach the supervisor.
    kept = flags & _FLAGS | socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
    return connection.sendmsg([message.data], controls, kept, *address)


def _judge(connection: socket.socket, message: _Message) -> list[tuple[str, int]]:
    """Return the address to send to, as a list of none or one.

    Raises:
        Refused: it is not that of a nameserver.
        OSError: EMSGSIZE, EISCONN.
    """
    if connection.type != socket.SOCK_STREAM and not message.whole:
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
    if not message.address:
        return []
    if connection.type != socket.SOCK_DGRAM:
        raise OSError(errno.EISCONN, os.strerror(errno.EISCONN))
    host, port = host_and_port(message.address)
    if not is_nameserver(host, port):
        raise Refused(f"send {place_of(host, port)}")
    mapped = connection.family == socket.AF_INET6 and host.version == 4
    return [(f"::ffff:{host}" if mapped else str(host), port)]


def _send_many(question: SystemCall, connection: socket.socket) -> int:
    """Send several messages (man 2 sendmmsg) without waiting; return how many were sent."""
    place, count, flags = question.arguments[1], question.arguments[2], question.integer(3)
    sent = 0
    with connection:
        for index in range(min(count & 0xFFFFFFFF, _MOST_MESSAGES)):
            here = place + index * _MANY_SIZE
            message = _read_message(question, here, connection)
            question.confirm()
            try:
                address = _judge(connection, message)
                size = _send_now(connection, message, flags, address)
            except OSError:
                if not sent:
                    raise
                break
            finally:
                _close_all(message.fds)
            question.write(here + _MESSAGE.size, struct.pack("=I", size))
            sent += 1
    return sent
