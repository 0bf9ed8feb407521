"""The notifier: calls that the supervisor makes for a command, or refuses."""

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import signal
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.exec.launcher.linux import syscall
from agent_magics.exec.launcher.notifications import socket_calls
from agent_magics.exec.launcher.notifications.question import NOTIFICATION, SystemCall
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement
from tests.support import forks
from tests.support.needs import not_tested
from tests.support.sandbox.confined_run import Outcome, attempt, result_of, run_confined
from tests.support.users import become, give

AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000


def run_bound(
    act: Callable[[], Any],
    place: str,
    uid: int,
    *,
    abi: int = 7,
    layer: str = "seccomp",
    **more: Any,
) -> Outcome:
    """Run `act` below the filter with a notifier, without Landlock."""
    confinement = Confinement(1, (f"{place}/project",), **more)
    return run_confined(act, confinement, f"{place}/project", uid=uid, abi=abi, layer=layer)


def run_free(act: Callable[[], Any], place: str, uid: int) -> Any:
    return result_of(run_confined(act, None, f"{place}/project", uid=uid))


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def call(name: str, *arguments: Any) -> str:
    number = number_of(name)
    return attempt(lambda: syscall(number, *arguments))


def change_modes(folder: str) -> dict[str, str]:
    """Every way to change a mode of what is in `folder`."""
    path = os.fsencode(f"{folder}/file")
    with open(path, "rb") as file:
        fd = file.fileno()
        own = f"/proc/self/fd/{fd}"
        results = {
            "chmod": attempt(lambda: os.chmod(path, 0o601)),
            "fchmod": attempt(lambda: os.fchmod(fd, 0o602)),
            "fchmodat": call("fchmodat", AT_FDCWD, path, 0o603),
            "fchmodat2": call("fchmodat2", AT_FDCWD, path, 0o604, 0),
            "fchmodat2 empty": call("fchmodat2", fd, b"", 0o605, AT_EMPTY_PATH),
            "/proc/self/fd": attempt(lambda: os.chmod(own, 0o606)),
            "chown": attempt(lambda: os.chown(path, -1, os.getgid())),
            "lchown": attempt(lambda: os.lchown(path, -1, os.getgid())),
            "fchown": attempt(lambda: os.fchown(fd, -1, os.getgid())),
            "fchownat": call("fchownat", AT_FDCWD, path, os.getuid(), -1, 0),
            "fchownat empty": call("fchownat", fd, b"", os.getuid(), -1, AT_EMPTY_PATH),
        }
    base = os.open(folder, os.O_RDONLY)
    results["relative to a folder"] = attempt(lambda: os.chmod("file", 0o607, dir_fd=base))
    os.close(base)
    return results


def test_modes_and_owners_change_below_the_workspace_only(uid: int, place: str) -> None:
    before = mode_of(f"{place}/outside/file")

    def act() -> list[dict[str, str]]:
        return [change_modes(f"{place}/project"), change_modes(f"{place}/outside")]

    bound = run_bound(act, place, uid)
    inside, outside = result_of(bound)
    assert inside == dict.fromkeys(inside, "done")
    assert outside == dict.fromkeys(outside, "EPERM")
    assert mode_of(f"{place}/project/file") == 0o607
    assert mode_of(f"{place}/outside/file") == before
    assert f"chmod {place}/outside/file" in bound.refused
    free = run_free(act, place, uid)
    assert set(free[1].values()) == {"done"}


def test_every_form_has_its_errors(uid: int, place: str) -> None:
    os.symlink("file", f"{place}/project/link")
    os.symlink(f"{place}/outside/file", f"{place}/project/leak")
    os.symlink("loop", f"{place}/project/loop")
    give(uid, f"{place}/project/link")

    def act() -> dict[str, str]:
        here = AT_FDCWD
        return {
            "absent": attempt(lambda: os.chmod("absent", 0o600)),
            "empty": call("fchmodat", here, b"", 0o600),
            "not a folder": attempt(lambda: os.chmod("file/x", 0o600)),
            "long": attempt(lambda: os.chmod("x" * 5000, 0o600)),
            "circle": attempt(lambda: os.chmod("loop", 0o600)),
            "null": call("fchmodat", here, None, 0o600),
            "nowhere": call("fchmodat", here, 8, 0o600),
            "no descriptor": attempt(lambda: os.fchmod(999, 0o600)),
            "no base": call("fchmodat", 999, b"file", 0o600),
            "flags": call("fchmodat2", here, b"file", 0o600, 0x10),
            "symlink itself": call("fchmodat2", here, b"link", 0o600, AT_SYMLINK_NOFOLLOW),
            "owner of a symlink": call("fchownat", here, b"link", -1, -1, AT_SYMLINK_NOFOLLOW),
            "through a symlink": attempt(lambda: os.chmod("link", 0o640)),
        }

    free = run_free(act, place, uid)
    bound = run_bound(act, place, uid)
    assert result_of(bound) == free
    assert bound.refused == []
    assert mode_of(f"{place}/project/file") == 0o640
    leaked = run_bound(lambda: attempt(lambda: os.chmod("leak", 0o640)), place, uid)
    assert result_of(leaked) == "EPERM"
    assert leaked.refused == [f"chmod {place}/outside/file"]


def test_a_setuid_bit_is_refused_and_the_groups_bit_of_a_folder_is_not(
    uid: int, place: str
) -> None:
    os.mkdir(f"{place}/project/folder")
    give(uid, f"{place}/project/folder")

    def act() -> list[str]:
        cases = (("file", 0o4755), ("file", 0o2755), ("folder", 0o4755), ("folder", 0o2775))
        return [attempt(lambda n=n, m=m: os.chmod(n, m)) for n, m in cases]

    bound = run_bound(act, place, uid)
    assert result_of(bound) == ["EPERM", "EPERM", "EPERM", "done"]
    assert mode_of(f"{place}/project/folder") == 0o2775
    assert not mode_of(f"{place}/project/file") & 0o6000
    assert bound.refused[0] == f"chmod 4755 {place}/project/file"
    assert run_free(act, place, uid) == ["done"] * 4


def test_a_path_that_is_exchanged_all_the_time_never_leads_out(uid: int, place: str) -> None:
    """A thread of the command swaps file and symlink under its own chmod."""
    before = mode_of(f"{place}/outside/file")
    tries = 300

    def act() -> list[int]:
        os.symlink(f"{place}/outside/file", "other")
        exchange, done = 2, threading.Event()

        def swap() -> None:
            # renameat2 is 316 on x86_64, 276 on aarch64
            number = 316 if os.uname().machine == "x86_64" else 276
            while not done.is_set():
                syscall(number, AT_FDCWD, b"file", AT_FDCWD, b"other", exchange)

        thread = threading.Thread(target=swap)
        thread.start()
        results: list[str] = []
        while len(results) < tries or (len(set(results)) == 1 and len(results) < 100 * tries):
            results.append(attempt(lambda: os.chmod("file", 0o777)))
        done.set()
        thread.join()
        return [results.count("done"), results.count("EPERM"), len(results)]

    bound = run_bound(act, place, uid)
    done, refused, made = result_of(bound)
    assert done + refused == made
    assert done and refused, "the race was not run"
    assert mode_of(f"{place}/outside/file") == before


def test_shared_memory_may_change_its_mode(uid: int, place: str) -> None:
    name = f"/dev/shm/agent-magics-test-{os.getpid()}"

    def act() -> str:
        with open(name, "w", encoding="utf-8") as file:
            result = attempt(lambda: os.fchmod(file.fileno(), 0o600))
        os.unlink(name)
        return result

    assert result_of(run_bound(act, place, uid)) == "done"


@pytest.mark.parametrize("abi", [1, 2])
def test_truncation_by_path_is_done_below_the_workspace_on_old_kernels(
    uid: int, place: str, abi: int
) -> None:
    def act() -> list[str]:
        return [
            attempt(lambda: os.truncate("file", 2)),
            attempt(lambda: os.truncate("file", -1)),
            attempt(lambda: os.truncate(f"{place}/outside/file", 2)),
        ]

    bound = run_bound(act, place, uid, abi=abi)
    assert result_of(bound) == ["done", "EINVAL", "EPERM"]
    assert os.path.getsize(f"{place}/project/file") == 2
    assert os.path.getsize(f"{place}/outside/file") > 2
    assert bound.refused == [f"truncate {place}/outside/file"]
    assert run_free(act, place, uid)[2] == "done"


@pytest.mark.parametrize("abi", [1, 5])
def test_signals_reach_the_commands_own_processes_only_on_old_kernels(
    uid: int, place: str, abi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_a_victim() -> None:
        become(uid)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        while True:
            signal.pause()

    def act() -> dict[str, str]:
        child = forks.start(signal.pause)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        everybody = attempt(lambda: os.kill(-1, 0)) if os.environ["AGENT_MAGICS_TEST_ABI"] else ""
        results = {
            "self": attempt(lambda: os.kill(os.getpid(), 0)),
            "thread": attempt(lambda: signal.pthread_kill(threading.get_ident(), 0)),
            "raise": attempt(lambda: signal.raise_signal(signal.SIGUSR1)),
            "own group": attempt(lambda: os.kill(0, signal.SIGUSR1)),
            "child's group": attempt(lambda: os.killpg(child, 0)),
            "child": attempt(lambda: os.kill(child, signal.SIGKILL)),
            "stranger": attempt(lambda: os.kill(victim, 0)),
            "stranger's thread": call("tkill", victim, 0),
            "stranger's group": attempt(lambda: os.killpg(os.getpgid(victim), 0)),
            "parent": attempt(lambda: os.kill(os.getppid(), 0)),
            "everybody": everybody,
            "nobody": attempt(lambda: os.kill(4_000_000, 0)),
        }
        os.waitpid(child, 0)
        return results

    with forks.child(be_a_victim) as victim:
        with monkeypatch.context() as environment:
            environment.setenv("AGENT_MAGICS_TEST_ABI", "")
            free = run_free(act, place, uid)
        bound = run_bound(act, place, uid, abi=abi)
    results = result_of(bound)
    own = ("self", "thread", "raise", "own group", "child", "child's group")
    assert {name: results[name] for name in own} == dict.fromkeys(own, "done")
    strangers = ("stranger", "stranger's thread", "stranger's group", "parent", "everybody")
    assert {name: results[name] for name in strangers} == dict.fromkeys(strangers, "EPERM")
    assert results["nobody"] == free["nobody"] == "ESRCH"
    assert free["stranger"] == free["stranger's thread"] == free["parent"] == "done"
    assert f"kill {victim}" in bound.refused


# Local sockets


def serve_and_connect(path: str, kind: int = socket.SOCK_STREAM) -> str:
    with socket.socket(socket.AF_UNIX, kind) as server, socket.socket(socket.AF_UNIX, kind) as c:
        server.bind(path)
        server.listen()
        c.connect(path)
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"hello")
            return c.recv(5).decode()


@pytest.mark.parametrize("network", [False, True])
def test_local_sockets_work_below_the_workspace(uid: int, place: str, network: bool) -> None:
    os.mkdir(f"{place}/project/deep")
    give(uid, f"{place}/project/deep")
    os.symlink("deep", f"{place}/project/link")

    def act() -> list[str]:
        paths = ("plain", f"{place}/project/absolute", "deep/relative", "link/through")
        kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
        return [serve_and_connect(f"{path}{kind}", kind) for path in paths for kind in kinds]

    bound = run_bound(act, place, uid, layer="all", network=network)
    assert result_of(bound) == ["hello"] * 8
    assert bound.refused == []


def test_sockets_outside_and_abstract_ones_are_refused(uid: int, place: str) -> None:
    outside = f"{place}/outside/socket"
    abstract = f"\0agent-magics-{os.getpid()}-{uid}"
    with (
        socket.socket(socket.AF_UNIX) as server,
        socket.socket(socket.AF_UNIX) as nameless,
    ):
        server.bind(outside)
        os.chmod(outside, 0o777)
        server.listen()
        nameless.bind(abstract)
        nameless.listen()
        os.symlink(outside, f"{place}/project/link")

        def act() -> list[str]:
            names = (outside, "link", f"/proc/self/root{outside}", abstract, "absent", "file")
            results = []
            for name in names:
                with socket.socket(socket.AF_UNIX) as client:
                    results.append(attempt(lambda c=client, n=name: c.connect(n)))
            return results

        free = run_free(act, place, uid)
        bound = run_bound(act, place, uid)
    assert free == ["done", "done", "done", "done", "ENOENT", "ECONNREFUSED"]
    assert result_of(bound) == ["EPERM", "EPERM", "ELOOP", "EPERM", "ENOENT", "ECONNREFUSED"]
    assert bound.refused == [f"connect {outside}", f"connect @{abstract[1:]}"]


def test_sockets_in_hidden_folders_of_the_workspace_are_refused(uid: int, place: str) -> None:
    hidden = f"{place}/project/hidden"
    os.mkdir(hidden)
    give(uid, hidden)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{hidden}/socket")
        os.chmod(f"{hidden}/socket", 0o777)
        server.listen()
        os.symlink("hidden/socket", f"{place}/project/link")

        def act() -> list[str]:
            results = []
            for name in ("hidden/socket", "link"):
                with socket.socket(socket.AF_UNIX) as client:
                    results.append(attempt(lambda c=client, n=name: c.connect(n)))
            return results

        free = run_free(act, place, uid)
        bound = run_bound(act, place, uid, hidden=(hidden,))
    assert free == ["done", "done"]
    assert result_of(bound) == ["EPERM", "EPERM"]
    assert bound.refused == [f"connect {hidden}/socket"]


def test_a_socket_that_is_made_elsewhere_is_not_reached_by_exchanging_its_name(
    uid: int, place: str
) -> None:
    """The address is changed by another thread while the call waits for its answer."""
    outside = f"{place}/outside/s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(outside)
        os.chmod(outside, 0o777)
        server.listen(64)
        server.setblocking(False)

        def act() -> list[str]:
            own = socket.socket(socket.AF_UNIX)
            own.bind("s")
            own.listen(64)
            inside = f"{place}/project/s".encode()
            good = struct.pack("=H", socket.AF_UNIX) + inside + b"\0"
            bad = struct.pack("=H", socket.AF_UNIX) + outside.encode() + b"\0"
            size = max(len(good), len(bad))
            buffer = ctypes.create_string_buffer(good, size)
            done = threading.Event()

            def swap() -> None:
                while not done.is_set():
                    ctypes.memmove(buffer, bad, len(bad))
                    ctypes.memmove(buffer, good, len(good))

            thread = threading.Thread(target=swap)
            thread.start()
            results = []
            # On a busy machine the other thread may not come to its turn for long.
            while len(results) < 60 or ("done" not in results and len(results) < 20_000):
                with socket.socket(socket.AF_UNIX) as client:
                    results.append(call("connect", client.fileno(), buffer, size))
                with contextlib.suppress(BlockingIOError):
                    own.setblocking(False)
                    own.accept()[0].close()
            done.set()
            thread.join()
            return results

        bound = run_bound(act, place, uid)
        results = result_of(bound)
        assert set(results) <= {"done", "EPERM", "ENOENT", "EINVAL", "ECONNREFUSED", "ENOTDIR"}
        assert "done" in results
        with pytest.raises(BlockingIOError):
            server.accept()


def test_a_full_queue_makes_the_command_wait_and_nobody_else(uid: int, place: str) -> None:
    def act() -> list[str]:
        server = socket.socket(socket.AF_UNIX)
        server.bind("s")
        server.listen(0)
        first, second, third = (socket.socket(socket.AF_UNIX) for _ in range(3))
        first.connect("s")
        third.setblocking(False)
        results = [attempt(lambda: third.connect("s"))]
        started = threading.Event()

        def wait() -> None:
            started.set()
            results.append(attempt(lambda: second.connect("s")))

        thread = threading.Thread(target=wait)
        thread.start()
        started.wait()
        # Another question is answered while that one waits.
        results.append(attempt(lambda: os.chmod("file", 0o640)))
        server.accept()
        thread.join()
        return results

    assert result_of(run_bound(act, place, uid)) == ["EAGAIN", "done", "done"]


def test_a_wait_ends_with_a_signal(uid: int, place: str) -> None:
    class Rung(Exception):
        pass

    def ring(*_: object) -> None:
        raise Rung

    def act() -> str:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("s")
            server.listen(0)
            first, second = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
            first.connect("s")
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                second.connect("s")
            except Rung:
                return "rung"
        return "connected"

    assert result_of(run_bound(act, place, uid)) == "rung"


def test_connecting_what_is_no_socket_is_the_errors_of_the_call(uid: int, place: str) -> None:
    address = struct.pack("=H", socket.AF_UNIX) + b"x\0"

    def act() -> list[str]:
        with socket.socket(socket.AF_UNIX) as s, open("file", "rb") as file:
            return [
                call("connect", 999, address, len(address)),
                call("connect", file.fileno(), address, len(address)),
                call("connect", s.fileno(), address, 1),
                call("connect", s.fileno(), address, 200),
                call("connect", s.fileno(), 8, len(address)),
                call("connect", s.fileno(), struct.pack("=H6x", socket.AF_INET), 8),
            ]

    free, bound = run_free(act, place, uid), result_of(run_bound(act, place, uid))
    assert free == bound


# Terminals


def test_terminals_of_ones_own_can_be_made_and_no_others(uid: int, place: str) -> None:
    def act() -> list[str]:
        master, slave = os.openpty()
        os.write(slave, b"hello")
        words = os.read(master, 5).decode()
        name = os.ttyname(slave)
        by_path = attempt(lambda: os.close(os.open(name, os.O_RDWR | os.O_NOCTTY)))
        on_a_file = attempt(lambda: fcntl.ioctl(os.open("file", os.O_RDONLY), 0x5441, 0))
        on_the_peer = attempt(lambda: fcntl.ioctl(slave, 0x5441, os.O_RDWR))
        kept = fcntl.fcntl(slave, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        return [words, by_path, on_a_file, on_the_peer, str(bool(kept))]

    free = run_free(act, place, uid)
    bound = result_of(run_bound(act, place, uid, layer="all"))
    assert free[:2] == ["hello", "done"]
    assert bound == ["hello", "EACCES", "ENOTTY", "ENOTTY", "True"]


# The internet


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "169.254.169.254", "255.255.255.255"),
        *("224.0.0.1", "100.100.100.200", "168.63.129.16", "240.0.0.1"),
        *("::1", "::", "fe80::1", "ff02::1", "fd00:ec2::254", "::127.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1::1"),
    ],
)
def test_addresses_of_this_machine_and_its_surroundings_are_local(host: str) -> None:
    assert socket_calls._is_local(ipaddress.ip_address(host))


@pytest.mark.parametrize("host", ["151.101.0.223", "8.8.8.8", "192.168.77.5", "2606:4700::1111"])
def test_addresses_elsewhere_are_not_local(host: str) -> None:
    assert not socket_calls._is_local(ipaddress.ip_address(host))


def test_every_address_of_this_machine_is_local() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            not_tested("an address of this machine", "it has none but its own loop")
        own = probe.getsockname()[0]
    assert not ipaddress.ip_address(own).is_loopback
    assert socket_calls._is_local(ipaddress.ip_address(own))


def test_mapped_addresses_are_those_they_hide() -> None:
    raw = struct.pack("!2xHI", 80, 0) + socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")
    address = struct.pack("=H", socket.AF_INET6) + raw[2:] + bytes(4)
    assert socket_calls.host_and_port(address) == (ipaddress.ip_address("127.0.0.1"), 80)


_FAMILIES = st.sampled_from([struct.pack("=H", number) for number in (0, 1, 2, 10)])
_ADDRESSES = st.builds(bytes.__add__, _FAMILIES, st.binary(max_size=126))


@given(_ADDRESSES | st.binary(min_size=2, max_size=128))
def test_any_address_is_understood_or_refused(address: bytes) -> None:
    family = struct.unpack("=H", address[:2])[0]
    size = {socket.AF_INET: 16, socket.AF_INET6: 24}.get(family)
    if size is None or len(address) < size:
        with pytest.raises(OSError, match="Address family"):
            socket_calls.host_and_port(address)
    else:
        host, port = socket_calls.host_and_port(address)
        assert 0 <= port < 1 << 16
        assert getattr(host, "ipv4_mapped", None) is None


def test_without_nameservers_it_is_this_machine(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "resolv.conf"
    monkeypatch.setattr(socket_calls, "_RESOLVER", str(conf))
    assert [str(host) for host in socket_calls._nameservers()] == ["127.0.0.1"]
    conf.write_text("# x\nsearch a b\nnameserver 10.0.0.2\nnameserver fe80::1%eth0\nnameserver x\n")
    assert [str(host) for host in socket_calls._nameservers()] == ["10.0.0.2", "fe80::1"]


@contextlib.contextmanager
def servers() -> Iterator[tuple[int, int]]:
    """A TCP and a UDP port of this machine."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        yield tcp.getsockname()[1], udp.getsockname()[1]
        udp.setblocking(False)
        received = []
        with contextlib.suppress(BlockingIOError):
            while True:
                received.append(udp.recv(100))
        # Two by the control.
        assert received == [b"to", b"message", b"many"], received


def send_many(fd: int, address: bytes) -> str:
    text = ctypes.create_string_buffer(b"many", 4)
    name = ctypes.create_string_buffer(address, len(address))
    vector = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(text), 4), 16)
    header = struct.pack(
        "=QIxxxxQQQQixxxxIxxxx",
        *(ctypes.addressof(name), len(address), ctypes.addressof(vector), 1, 0, 0, 0, 0),
    )
    return call("sendmmsg", fd, ctypes.create_string_buffer(header, len(header)), 1, 0)


def test_with_network_this_machine_and_other_ports_are_out_of_reach(uid: int, place: str) -> None:
    with servers() as (tcp_port, udp_port):

        def act() -> dict[str, str]:
            results = {}
            for name, host, port in (
                ("port", "127.0.0.1", tcp_port),
                ("local 80", "127.0.0.1", 80),
                ("any 443", "0.0.0.0", 443),
                ("metadata", "169.254.169.254", 80),
                ("ssh", "192.0.2.1", 22),
            ):
                with socket.socket() as client:
                    client.settimeout(0.2)
                    results[name] = attempt(lambda c=client, h=host, p=port: c.connect((h, p)))
            with socket.socket(socket.AF_INET6) as client:
                results["mapped"] = attempt(lambda: client.connect(("::ffff:127.0.0.1", tcp_port)))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
                there = ("127.0.0.1", udp_port)
                raw = struct.pack("=H", 2) + struct.pack("!H", udp_port) + bytes([127, 0, 0, 1])
                results["sendto"] = attempt(lambda: u.sendto(b"to", there))
                results["sendmsg"] = attempt(lambda: u.sendmsg([b"message"], [], 0, there))
                results["sendmmsg"] = send_many(u.fileno(), raw + bytes(8))
                results["udp"] = attempt(lambda: u.connect(there))
            with socket.socket() as server:
                server.bind(("127.0.0.1", 0)) if not os.environ.get("AGENT_MAGICS_TEST_ABI") else 0
                results["listen"] = attempt(server.listen)
            return results

        free = run_free(act, place, uid)
        bound = run_bound(act, place, uid, network=True)
    assert {
        free[n] for n in ("port", "mapped", "sendto", "sendmsg", "sendmmsg", "udp", "listen")
    } == {"done"}
    results = result_of(bound)
    assert results == dict.fromkeys(results, "EPERM")
    assert f"connect 127.0.0.1:{tcp_port}" in bound.refused
    assert "connect 169.254.169.254:80" in bound.refused
    assert f"send 127.0.0.1:{udp_port}" in bound.refused


# A loopback address that no resolver of the machine, and no other worker, serves.
NAMESERVER = f"127.53.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"


def make_resolver(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "resolv.conf"
    conf.write_text(f"nameserver {NAMESERVER}\n")
    monkeypatch.setattr(socket_calls, "_RESOLVER", str(conf))


@pytest.mark.needs("root")  # who alone may serve port 53
def test_names_are_looked_up_at_the_nameserver(
    uid: int, place: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_resolver(tmp_path, monkeypatch)
    os.chmod(tmp_path, 0o755)
    monkeypatch.setattr(socket_calls, "_nameservers", lambda: [ipaddress.ip_address(NAMESERVER)])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nameserver:
        nameserver.bind((NAMESERVER, 53))

        def act() -> list[str]:
            there = (NAMESERVER, 53)
            raw = struct.pack("=H", 2) + struct.pack("!H", 53)
            raw += socket.inet_aton(NAMESERVER) + bytes(8)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
                results = [
                    attempt(lambda: u.sendto(b"to", there)),
                    attempt(lambda: u.sendmsg([b"mes", b"sage"], [], 0, there)),
                    send_many(u.fileno(), raw),
                    attempt(lambda: u.connect(there)),
                    attempt(lambda: u.send(b"send")),
                    attempt(lambda: u.sendmsg([b"connected"])),
                    attempt(lambda: u.connect((NAMESERVER, 54))),
                ]
                unspecified = struct.pack("=H14x", socket.AF_UNSPEC)
                results.append(call("connect", u.fileno(), unspecified, len(unspecified)))
            return results

        bound = run_bound(act, place, uid, network=True)
        assert result_of(bound) == ["done"] * 6 + ["EPERM", "done"]
        got = [nameserver.recv(100) for _ in range(5)]
    assert got == [b"to", b"message", b"many", b"send", b"connected"]


def test_with_network_local_sockets_still_pass_descriptors(uid: int, place: str) -> None:
    def act() -> list[str]:
        one, two = socket.socketpair()
        reader, writer = os.pipe()
        socket.send_fds(one, [b"a", b"bc"], [writer, writer])
        data, fds, _, _ = socket.recv_fds(two, 10, 4)
        os.write(fds[1], b"through")
        return [data.decode(), os.read(reader, 10).decode(), str(len(fds))]

    bound = run_bound(act, place, uid, network=True)
    assert result_of(bound) == ["abc", "through", "2"]


def test_with_network_large_messages_are_sent_whole(uid: int, place: str) -> None:
    size = 1_000_000

    def act() -> list[int]:
        one, two = socket.socketpair()
        got = 0

        def read() -> None:
            nonlocal got
            while data := two.recv(1 << 16):
                got += len(data)

        thread = threading.Thread(target=read)
        thread.start()
        sent = 0
        while sent < size:
            sent += one.sendmsg([b"x" * (size - sent)])
        one.shutdown(socket.SHUT_WR)
        thread.join()
        return [sent, got]

    assert result_of(run_bound(act, place, uid, network=True)) == [size, size]


def test_connecting_far_away_is_waited_for(
    uid: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With this machine declared far away: a server that answers, and one that refuses."""
    monkeypatch.setattr(socket_calls, "_is_local", lambda host: False)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port, dead = server.getsockname()[1], closed.getsockname()[1]
        monkeypatch.setattr(socket_calls, "PORTS", (port, dead))

        def act() -> list[str]:
            results = []
            for number in (port, dead):
                for timeout in (None, 5.0):
                    with socket.socket() as client:
                        client.settimeout(timeout)
                        results.append(
                            attempt(lambda c=client, n=number: c.connect(("127.0.0.1", n)))
                        )
            return results

        bound = run_bound(act, place, uid, network=True)
    assert result_of(bound) == ["done", "done", "ECONNREFUSED", "ECONNREFUSED"]


# The question itself


def test_integers_are_read_as_the_kernel_does() -> None:
    arguments = (0xFFFFFFFF_FFFFFF9C, 0x1_0000_0005, 0x80000000, 0, 0, 0)
    question = SystemCall(NOTIFICATION.pack(1, 2, 0, 3, 4, 5, *arguments), lambda _: None)
    assert [question.integer(i) for i in range(3)] == [AT_FDCWD, 5, -(1 << 31)]


def test_memory_that_is_not_there_is_a_fault() -> None:
    question = SystemCall(NOTIFICATION.pack(1, os.getpid(), *(0,) * 10), lambda _: None)
    for address in (0, 8, (1 << 64) - 8):
        with pytest.raises(OSError, match="Bad address"):
            question.read(address, 8)
    text = ctypes.create_string_buffer(b"name\0rest")
    assert question.read_path(ctypes.addressof(text)) == b"name"
