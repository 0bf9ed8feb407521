"""Attacks by network and by sockets of this machine."""

import ctypes
import errno
import hashlib
import hmac
import json
import os
import socket
import struct
import threading

from tests.support.attacks.syscalls import LIBC, syscall
from tests.support.attacks.table import NETWORK, World, attack, racing, read

_SECONDS = 2.0  # all servers are on this machine, so a refusal arrives at once


def _connected(family: int, kind: int, address: object, protocol: int = 0) -> socket.socket:
    door = socket.socket(family, kind, protocol)
    door.settimeout(_SECONDS)
    door.connect(address)
    return door


def _say(door: socket.socket, word: str) -> None:
    door.sendall(word.encode())
    door.close()


@attack(34, "TCP to a service of 127.0.0.1", NETWORK, "received")
def _(w: World):
    _say(_connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", w.tcp_port)), "row34")


@attack(35, "UDP sent (as DNS exfiltration is)", NETWORK, "received")
def _(w: World):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.sendto(b"row35", ("127.0.0.1", w.udp_port))


@attack(36, "abstract unix socket", NETWORK, "received")
def _(w: World):
    _say(_connected(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{w.abstract}"), "row36")


@attack(37, "unix stream socket by path (docker.sock, an agent, D-Bus)", NETWORK, "received")
def _(w: World):
    _say(_connected(socket.AF_UNIX, socket.SOCK_STREAM, w.unix_stream), "row37")


@attack(38, "unix datagram socket by path, sendto", NETWORK, "received")
def _(w: World):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.sendto(b"row38", w.unix_datagram)


@attack(39, "unix datagram socket by path, sendmsg", NETWORK, "received")
def _(w: World):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.sendmsg([b"row39"], [], 0, w.unix_datagram)


@attack(40, "a pair of datagram sockets, sendmsg to a path", NETWORK, "received")
def _(w: World):
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    # On a connected socket the address wins for datagrams.
    ours.sendmsg([b"row40"], [], 0, w.unix_datagram)


def _execute(w: World, word: str) -> None:
    """Make the kernel of the connection file run code, as a client would."""
    connection = json.loads(read(w.connection_file))
    signature = hmac.new(connection["key"].encode(), word.encode(), hashlib.sha256).hexdigest()
    address = (connection["ip"], connection["shell_port"])
    _say(_connected(socket.AF_INET, socket.SOCK_STREAM, address), f"{signature} {word}")


@attack(70, "the connection file read, code run in the kernel", NETWORK, "received")
def _(w: World):
    _execute(w, "row70")


@attack(71, "the same with network approved", NETWORK, "received", run="network")
def _(w: World):
    _execute(w, "row71")


@attack(73, "netlink, packet, alg and vsock sockets", NETWORK, "reached")
def _(w: World):
    families = {"netlink": 16, "packet": 17, "alg": 38, "vsock": 40}
    opened, refused = [], None
    for name, family in families.items():
        kind = socket.SOCK_SEQPACKET if name == "alg" else socket.SOCK_RAW
        try:
            socket.socket(family, socket.SOCK_STREAM if name == "vsock" else kind).close()
            opened.append(name)
        except OSError as error:
            refused = error
    if not opened and refused is not None:
        raise refused
    return " ".join(opened)


# -- found while this sandbox was built -----------------------------------------------------------


@attack(110, "a symlink of the workspace to a socket outside", NETWORK, "received")
def _(w: World):
    os.symlink(w.unix_stream, f"{w.workspace}/row110")
    _say(_connected(socket.AF_UNIX, socket.SOCK_STREAM, f"{w.workspace}/row110"), "row110")


@attack(111, "a socket path that another thread rewrites in memory", NETWORK, "received")
def _(w: World):
    inside = f"{w.workspace}/s111"
    served = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    served.bind(inside)
    served.listen(1000)
    buffer = ctypes.create_string_buffer(110)
    sides = [
        struct.pack("=H108s", socket.AF_UNIX, path.encode()) for path in (inside, w.unix_stream)
    ]
    buffer.raw = sides[0]
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for side in sides:
                ctypes.memmove(buffer, side, 110)

    thread = threading.Thread(target=rewrite)
    thread.start()
    refused = None
    for _ in racing():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.setblocking(False)  # nobody accepts inside; a full queue is no refusal
            if LIBC.connect(door.fileno(), buffer, 110) == 0:
                door.sendall(b"row111")
            elif ctypes.get_errno() not in (errno.ENOENT, errno.EAGAIN):
                refused = OSError(ctypes.get_errno(), "connect")
    stop.set()
    thread.join()
    if refused is not None:
        raise refused


@attack(112, "a unix socket made outside", NETWORK, "changed", target="outside/row112new")
def _(w: World):
    socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).bind(f"{w.outside}/row112new")


@attack(
    113, "a socket of the workspace's that listens for the person's programs", NETWORK, "reached"
)
def _(w: World):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        return str(door.getsockname()[1])


# Network approved means TCP to ports 80 and 443 of other machines. All these are this machine.


def approved(number: int, title: str, **more):
    """Define a row that is tried with network approved."""
    return attack(number, f"network approved: {title}", NETWORK, "received", run="network", **more)


@approved(120, "TCP to 127.0.0.1, any port")
def _(w: World):
    _say(_connected(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", w.tcp_port)), "row120")


@approved(121, "TCP to port 80 of this machine", who="root")
def _(w: World):
    _say(_connected(socket.AF_INET, socket.SOCK_STREAM, (w.web_address, 80)), "row121")


@approved(122, "TCP to port 80 of this machine, as an IPv6 address", who="root")
def _(w: World):
    mapped = (f"::ffff:{w.web_address}", 80)
    _say(_connected(socket.AF_INET6, socket.SOCK_STREAM, mapped), "row122")


@approved(123, "TCP to 0.0.0.0")
def _(w: World):
    _say(_connected(socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", w.tcp_port)), "row123")


@approved(124, "TCP Fast Open: sendto instead of connect")
def _(w: World):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.sendto(b"row124", socket.MSG_FASTOPEN, ("127.0.0.1", w.tcp_port))


@approved(125, "TCP Fast Open by sendmsg")
def _(w: World):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.sendmsg([b"row125"], [], socket.MSG_FASTOPEN, ("127.0.0.1", w.tcp_port))


@approved(126, "multipath TCP")
def _(w: World):
    multipath = 262  # IPPROTO_MPTCP of <linux/in.h>
    address = ("127.0.0.1", w.tcp_port)
    _say(_connected(socket.AF_INET, socket.SOCK_STREAM, address, multipath), "row126")


@approved(127, "UDP to a service of this machine")
def _(w: World):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.sendto(b"row127", ("127.0.0.1", w.udp_port))


@approved(128, "UDP by sendmsg, unconnected")
def _(w: World):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.sendmsg([b"row128"], [], 0, ("127.0.0.1", w.udp_port))


@approved(129, "abstract unix socket")
def _(w: World):
    _say(_connected(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{w.abstract}"), "row129")


@approved(130, "unix stream socket by path")
def _(w: World):
    _say(_connected(socket.AF_UNIX, socket.SOCK_STREAM, w.unix_stream), "row130")


@approved(131, "unix datagram socket by path")
def _(w: World):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.sendto(b"row131", w.unix_datagram)


@approved(132, "an address that another thread rewrites in memory")
def _(w: World):
    # 192.0.2.0/24 is nobody's (RFC 5737); the service is on this machine.
    elsewhere = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", 80, b"\xc0\0\2\1")
    local = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", w.tcp_port, b"\x7f\0\0\1")
    buffer = ctypes.create_string_buffer(elsewhere, 16)
    stop = threading.Event()

    def rewrite() -> None:
        while not stop.is_set():
            for side in (local, elsewhere):
                ctypes.memmove(buffer, side, 16)

    thread = threading.Thread(target=rewrite)
    thread.start()
    refused = None
    for _ in racing():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
            door.setblocking(False)
            if LIBC.connect(door.fileno(), buffer, 16) and ctypes.get_errno() == errno.EINPROGRESS:
                if door.getsockname()[0] == "127.0.0.1":
                    door.setblocking(True)
                    door.sendall(b"row132")
            else:
                refused = OSError(ctypes.get_errno(), "connect")
    stop.set()
    thread.join()
    if refused is not None:
        raise refused


@approved(133, "sendmmsg to a unix datagram socket")
def _(w: World):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        syscall("sendmmsg", door.fileno(), _messages(b"row133", w.unix_datagram), 1, 0)


_kept = []


def _messages(word: bytes, path: str) -> ctypes.Array:
    """Return one struct mmsghdr (<sys/socket.h>) that sends `word` to the socket at `path`."""
    name = ctypes.create_string_buffer(struct.pack("=H108s", socket.AF_UNIX, path.encode()), 110)
    text = ctypes.create_string_buffer(word, len(word))
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(text), len(word)))
    _kept.extend((name, text, vector))
    header = struct.pack(
        "QI4xQQQQI4xI4x", ctypes.addressof(name), 110, ctypes.addressof(vector), 1, 0, 0, 0, 0
    )
    return ctypes.create_string_buffer(header, len(header))
