"""Connects on behalf of a command: to local sockets below its folders, to the web if allowed.

The address is copied, judged, and used here, on the command's own socket: the command's own call
never runs, so that it cannot exchange the address in between. Landlock's rule for TCP ports binds
the command and not the supervisor; the ports are therefore judged here as well.
"""

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Callable

from agent_magics.backends.launcher.descriptors import path_of
from agent_magics.backends.launcher.landlock import PORTS, SHARED_MEMORY, is_below
from agent_magics.backends.launcher.linux import syscall
from agent_magics.backends.launcher.question import AT_FDCWD, Later, Question, Refused
from agent_magics.backends.launcher.syscalls import number_of
from agent_magics.backends.launcher.wire import Confinement

LONGEST_ADDRESS = 128  # struct sockaddr_storage
_FAMILY = struct.Struct("=H")
_PORT = struct.Struct("!H")  # at 2 in both struct sockaddr_in and sockaddr_in6
_DNS = 53
_RESOLVER = "/etc/resolv.conf"

# libc asks these about users and hosts, and goes on without them: nobody need hear of it.
_NAME_SERVICES = ("/run/nscd", "/var/run/nscd", "/var/lib/sss/pipes", "/run/systemd")

# Addresses of clouds that hand out the machine's credentials and are not link-local.
_METADATA = tuple(
    map(ipaddress.ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254"))
)

# "This network", broadcast, and v4 addresses in the disguise of a v6 one: compatible, NAT64, 6to4,
# Teredo.
_NEVER = tuple(
    map(
        ipaddress.ip_network,
        ("0.0.0.0/8", "240.0.0.0/4", "::/96", "64:ff9b::/96", "2002::/16", "2001::/32"),
    )
)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def connect(question: Question, confinement: Confinement) -> int | Later:
    """Make the call connect(2).

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


def take_socket(question: Question) -> socket.socket:
    """Return a copy of the socket that is the first argument.

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
    question: Question, connection: socket.socket, address: bytes, confinement: Confinement
) -> int | Later:
    name = address[_FAMILY.size :]
    path = name.partition(b"\0")[0]
    if _FAMILY.unpack_from(address)[0] != socket.AF_UNIX:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if not path:  # abstract: there is no path to judge
        raise Refused("connect @" + _shown(name[1:]))
    target = question.open_path(AT_FDCWD, path, follow=True)
    try:
        where = path_of(target)
        if not is_below(where, (*confinement.writable, SHARED_MEMORY)):
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
    """Connect without waiting, whatever the socket is set to, which the command shares."""
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
) -> int | Later:
    """Do `act`; where that would have to wait, and the command wants to, make a Later of it.

    Args:
        connection: a copy of the command's socket; closed when it is done.
        act: what to do; it never waits, but raises BlockingIOError.
        close: called when it is done.
        wait: False: the command does not want to wait.
    """

    def close_all() -> None:
        connection.close()
        close()

    wait = wait and not fcntl.fcntl(connection.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK
    later: Later | None = None
    try:
        return act()
    except BlockingIOError as error:  # EAGAIN, EINPROGRESS, EALREADY
        if not wait:
            raise
        if error.errno == errno.EAGAIN and connection.family == socket.AF_UNIX:
            later = Later(act, None, close_all)  # a queue is full; nothing tells when it is not
        elif error.errno == errno.EAGAIN:
            later = Later(act, connection.fileno(), close_all)
        else:
            later = Later(lambda: _outcome(connection), connection.fileno(), close_all)
        return later
    finally:
        if later is None:
            close_all()


def _outcome(connection: socket.socket) -> int:
    """What became of a connection that was begun: 0, or an error."""
    error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))
    try:
        connection.getpeername()
    except OSError:
        raise BlockingIOError(errno.EINPROGRESS, "") from None
    return 0


# The internet


def _connect_internet(connection: socket.socket, address: bytes) -> int | Later:
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
    """Return host and port for people."""
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"


def _is_local(host: Address) -> bool:
    """Whether `host` is this machine, its link, or a cloud's door to the machine's credentials."""
    special = host.is_loopback or host.is_link_local or host.is_unspecified
    if special or host.is_multicast or host in _METADATA:
        return True
    if any(host in network for network in _NEVER if network.version == host.version):
        return True
    return _is_own_address(host)


def _is_own_address(host: Address) -> bool:
    """Whether a packet to `host` would leave from `host`: then it is one of this machine."""
    family = socket.AF_INET if host.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.connect((str(host), _DNS))  # sends nothing
            return ipaddress.ip_address(trial.getsockname()[0].partition("%")[0]) == host
    except OSError:  # there is no way to it
        return False


def is_nameserver(host: Address, port: int) -> bool:
    """Whether this is where names of hosts are looked up."""
    return port == _DNS and host in _nameservers()


def _nameservers() -> list[Address]:
    """The nameservers of man 5 resolv.conf; without any it is the one of this machine."""
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


def listen(question: Question) -> int:
    """Make the call listen(2), for local sockets only.

    Raises:
        Refused: it is a socket of the internet.
        OSError: as the call itself.
    """
    with take_socket(question) as connection:
        question.confirm()
        if connection.family != socket.AF_UNIX:
            raise Refused("listen")
        connection.listen(question.integer(1))
    return 0
