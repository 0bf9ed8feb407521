"""Connects on behalf of a command: to local sockets below its folders, to the web if allowed.

The address is copied, judged, and used here, on the command's own socket: the command's own call is
never executed, so it cannot exchange the address in between. Landlock's rule for TCP ports applies
to the command and not to the supervisor, so the ports are judged here as well.
"""

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable

from agent_magics.exec.launcher.descriptors import path_of
from agent_magics.exec.launcher.linux import syscall
from agent_magics.exec.launcher.notifications.question import (
    AT_FDCWD,
    Deferred,
    Refused,
    SystemCall,
)
from agent_magics.exec.launcher.rules.landlock import PORTS, SHARED_MEMORY, is_below
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement

LONGEST_ADDRESS = 128  # struct sockaddr_storage
_FAMILY = struct.Struct("=H")
_PORT = struct.Struct("!H")  # at 2 in both struct sockaddr_in and sockaddr_in6
_DNS = 53
_RESOLVER = "/etc/resolv.conf"

# Sockets that libc tries for users and hosts and can do without: refusals are not reported.
_NAME_SERVICES = ("/run/nscd", "/var/run/nscd", "/var/lib/sss/pipes", "/run/systemd")

# Cloud metadata services, which give out the machine's credentials, with addresses that are not
# link-local.
_METADATA = tuple(
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
)

# "This network", broadcast, and IPv4 addresses embedded in IPv6 ones: compatible, NAT64, 6to4,
# Teredo.
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "240.0.0.0/4", "::/96", "64:ff9b::/96", "2002::/16", "2001::/32"),
    )
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def connect(question: SystemCall, confinement: Confinement) -> int | Deferred:
    """Perform the call connect(2).

    Raises:
        Refused: the address is not one that `confinement` allows.
        OSError: as the call itself.
    """
    size = question.integer(2)
    if not _FAMILY.size <= size <= LONGEST_ADDRESS:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    address = question.read(question.arguments[1], size)
    connection = take_socket(question)
    try:
        question.confirm()
        if connection.family == socket.AF_UNIX:
            return _connect_local(question, connection, address, confinement)
        if not confinement.network:
            raise Refused("connect")
        return _connect_internet(connection, address)
    except BaseException:
        connection.close()  # twice does no harm
        raise


def take_socket(question: SystemCall) -> socket.socket:
    """Copy the socket that is the call's first argument.

    Raises:
        OSError: EBADF, ENOTSOCK.
    """
    fd = question.take(question.integer(0))
    try:
        return socket.socket(fileno=fd)
    except OSError:  # not a socket
        os.close(fd)
        raise


def _connect_local(
    question: SystemCall, connection: socket.socket, address: bytes, confinement: Confinement
) -> int | Deferred:
    name = address[_FAMILY.size :]
    path = name.partition(b"\0")[0]
    if _FAMILY.unpack_from(address)[0] != socket.AF_UNIX:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if not path:  # abstract: there is no path to judge
        raise Refused("connect @" + _shown(name[1:]))
    target = question.open_path(AT_FDCWD, path, follow=True)
    try:
        where = path_of(target)
        own = is_below(where, (*confinement.writable, SHARED_MEMORY))
        if not own or is_below(where, confinement.hidden):
            raise Refused("" if is_below(where, _NAME_SERVICES) else f"connect {where}")
    except BaseException:
        os.close(target)
        raise
    link = f"/proc/self/fd/{target}".encode("ascii")
    name = _FAMILY.pack(socket.AF_UNIX) + link + b"\0"
    return finish(connection, lambda: _connect_now(connection, name), lambda: os.close(target))


def _shown(name: bytes) -> str:
    return name.rstrip(b"\0").decode("utf-8", "backslashreplace")


def _connect_now(connection: socket.socket, address: bytes) -> int:
    """Connect in non-blocking mode, then restore the flags, which the command shares."""
    fd = connection.fileno()
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        return syscall(number_of("connect"), fd, address, len(address))
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)


def finish(
    connection: socket.socket,
    act: Callable[[], int],
    close: Callable[[], None] = lambda: None,
    *,
    wait: bool = True,
) -> int | Deferred:
    """Perform `act`; if it would block, and the command's socket may, return a `Deferred`.

    Args:
        connection: a copy of the command's socket; closed when it is done.
        act: the operation; it never blocks, but raises BlockingIOError.
        close: called when it is done.
        wait: whether the command allows waiting.
    """

    def close_all() -> None:
        connection.close()
        close()

    wait = wait and not fcntl.fcntl(connection.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK
    later: Deferred | None = None
    try:
        return act()
    except BlockingIOError as error:  # EAGAIN, EINPROGRESS, EALREADY
        if not wait:
            raise
        if error.errno == errno.EAGAIN and connection.family == socket.AF_UNIX:
            # a queue is full, with no event for when it is not
            later = Deferred(act, None, close_all)
        elif error.errno == errno.EAGAIN:
            later = Deferred(act, connection.fileno(), close_all)
        else:
            later = Deferred(lambda: _outcome(connection), connection.fileno(), close_all)
        return later
    finally:
        if later is None:
            close_all()


def _outcome(connection: socket.socket) -> int:
    """Return 0 for an established connection, or raise its error."""
    error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    try:
        connection.getpeername()
    except OSError:
        raise BlockingIOError(errno.EINPROGRESS, "") from None
    return 0


# The internet


def _connect_internet(connection: socket.socket, address: bytes) -> int | Deferred:
    family = _FAMILY.unpack_from(address)[0]
    if family == socket.AF_UNSPEC:  # ends a connection; libc does it between candidates
        return finish(connection, lambda: _connect_now(connection, address))
    host, port = host_and_port(address)
    if connection.type == socket.SOCK_DGRAM:
        if not is_nameserver(host, port):
            # libc does this to compare routes; nothing is sent by it.
            raise Refused("")
    elif not is_nameserver(host, port) and (port not in PORTS or _is_local(host)):
        raise Refused(f"connect {place_of(host, port)}")
    return finish(connection, lambda: _connect_now(connection, address))


def host_and_port(address: bytes) -> tuple[Address, int]:
    """Return host and port of a struct sockaddr_in or sockaddr_in6; v4-mapped ones as v4.

    Raises:
        OSError: it is neither (EAFNOSUPPORT).
    """
    family = _FAMILY.unpack_from(address)[0]
    if family == socket.AF_INET and len(address) >= 16:
        host: Address = ipaddress.IPv4Address(address[4:8])
    elif family == socket.AF_INET6 and len(address) >= 24:
        host = ipaddress.IPv6Address(address[8:24])
        host = host.ipv4_mapped or host
    else:
        raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
    return host, _PORT.unpack_from(address, 2)[0]


def place_of(host: Address, port: int) -> str:
    """Format host and port for people."""
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def _is_local(host: Address) -> bool:
    """Tell whether `host` is this machine, its link, or a cloud metadata service."""
    special = host.is_loopback or host.is_link_local or host.is_unspecified
    if special or host.is_multicast or host in _METADATA:
        return True
    if any(host in network for network in _NEVER if network.version == host.version):
        return True
    return _is_own_address(host)


def _is_own_address(host: Address) -> bool:
    """Tell whether `host` is an address of this machine: packets to it would come from it."""
    family = socket.AF_INET if host.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.connect((str(host), _DNS))  # sends nothing
            return ipaddress.ip_address(trial.getsockname()[0].partition("%")[0]) == host
    except OSError:  # unreachable
        return False


def is_nameserver(host: Address, port: int) -> bool:
    """Tell whether this is the DNS port of a configured nameserver."""
    return port == _DNS and host in _nameservers()


def _nameservers() -> list[Address]:
    """Return the nameservers of man 5 resolv.conf; this machine if there are none."""
    found: list[Address] = []
    try:
        with open(_RESOLVER, encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        words = []
    for word in words:
        if len(word) >= 2 and word[0] == "nameserver":
            try:
                found.append(ipaddress.ip_address(word[1].partition("%")[0]))
            except ValueError:
                continue
    return found or [ipaddress.IPv4Address("127.0.0.1")]


def listen(question: SystemCall) -> int:
    """Perform the call listen(2), for local sockets only.

    Raises:
        Refused: it is an internet socket.
        OSError: as the call itself.
    """
    with take_socket(question) as connection:
        question.confirm()
        if connection.family != socket.AF_UNIX:
            raise Refused("listen")
        connection.listen(question.integer(1))
    return 0
