"""The seccomp filter alone, without Landlock: what is refused, and what must not be."""

import asyncio
import concurrent.futures.thread
import ctypes
import errno
import fcntl
import os
import re
import resource
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_magics.exec.launcher import linux, syscalls
from agent_magics.exec.launcher.linux import syscall
from agent_magics.exec.launcher.rules import seccomp
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement
from tests.support.needs import not_tested
from tests.support.sandbox.confined_run import Outcome, attempt, result_of, run_confined

# With -1 for every argument these would do something: arguments that do nothing.
HARMLESS = {"msgget": (0x7F3A91, 0), "semget": (0x7F3A91, 1, 0), "shmget": (0x7F3A91, 1, 0)}


def run_bound(
    act: Callable[[], Any],
    place: str,
    uid: int,
    *,
    abi: int = 7,
    tier: int = 1,
    network: bool = False,
) -> Outcome:
    confinement = Confinement(tier, (f"{place}/project",), network=network)
    return run_confined(act, confinement, f"{place}/project", uid=uid, abi=abi, layer="seccomp")


def run_both(act: Callable[[], Any], place: str, uid: int, **more: Any) -> tuple[Any, Any]:
    free = result_of(run_confined(act, None, f"{place}/project", uid=uid))
    return free, result_of(run_bound(act, place, uid, **more))


def call(name: str, *arguments: Any) -> str:
    number = number_of(name)
    assert number is not None
    return attempt(lambda: syscall(number, *arguments))


@pytest.mark.needs("tier 2")  # without the sandbox they are allowed
def test_what_no_command_needs_is_refused(uid: int, place: str) -> None:
    names = [name for name in seccomp._REFUSED if number_of(name)]

    def act() -> dict[str, str]:
        return {name: call(name, *HARMLESS.get(name, (-1,) * 6)) for name in names}

    free, bound = run_both(act, place, uid)
    assert bound == dict.fromkeys(names, "EPERM")
    # The control: the kernel itself would have said something else. For the rest, which a user may
    # not do anyway or this kernel was built without, only the answer above counts.
    proven = {name for name, result in free.items() if result not in ("EPERM", "ENOSYS")}
    wanted = {"ptrace", "process_vm_readv", "pidfd_getfd", "pidfd_send_signal", "io_uring_setup"}
    wanted |= {"unshare", "setns", "keyctl", "shmget", "semget", "msgget", "mq_open", "bpf"}
    wanted |= {"name_to_handle_at", "move_mount" if uid == 0 else "add_key"}
    assert wanted - {"bpf", "io_uring_setup"} <= proven, wanted - proven


def test_attributes_are_not_supported(uid: int, place: str) -> None:
    def act() -> dict[str, str]:
        results = {name: call(name, *(-1,) * 6) for name in seccomp._ATTRIBUTES}
        results["set"] = attempt(lambda: os.setxattr("file", "user.a", b"b"))
        results["list"] = attempt(lambda: os.listxattr("file"))
        return results

    free, bound = run_both(act, place, uid)
    assert free["set"] == free["list"] == "done"
    assert bound.pop("list") == "done"
    assert set(bound.values()) == {"ENOTSUP"}


@pytest.mark.needs("tier 2")  # without the sandbox they are allowed
def test_calls_nobody_has_judged_yet_are_missing(uid: int, place: str) -> None:
    numbers = [syscalls.NEWEST + 1, 1000, number_of("clone3"), number_of("openat2")]

    def act() -> list[str]:
        return [attempt(lambda n=n: syscall(n, *(-1,) * 6)) for n in numbers]

    free, bound = run_both(act, place, uid)
    assert bound == ["ENOSYS"] * 4
    assert "ENOSYS" not in free[2:]


@pytest.mark.needs("machine x86_64")
def test_x32_is_missing_and_32_bit_code_is_killed(uid: int, place: str) -> None:
    x32_getpid = 0x40000000 | 39
    free, bound = run_both(lambda: attempt(lambda: syscall(x32_getpid)), place, uid)
    assert bound == "ENOSYS"
    del free  # most kernels have no x32: this one proves nothing

    def get_pid_by_interrupt() -> int:
        # mov eax, 20 (getpid); int 0x80; ret
        code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
        memory = ctypes.CDLL(None).mmap
        memory.restype = ctypes.c_void_p
        place = memory(None, 4096, 7, 0x22, -1, 0)
        ctypes.memmove(place, code, len(code))
        return ctypes.CFUNCTYPE(ctypes.c_int)(place)()

    free_run = run_confined(get_pid_by_interrupt, None, f"{place}/project", uid=uid)
    bound_run = run_bound(get_pid_by_interrupt, place, uid)
    assert bound_run.status == -signal.SIGSYS
    # Where the kernel has no 32-bit emulation the control cannot succeed, but it is not SIGSYS.
    assert free_run.status in (0, -signal.SIGSEGV)


@pytest.mark.needs("tier 2")  # without the sandbox they are allowed
def test_new_namespaces_are_refused_and_new_processes_are_not(uid: int, place: str) -> None:
    new_user, sigchld = 0x10000000, 17

    def clone(flags: int) -> str:
        try:
            pid = syscall(number_of("clone"), flags | sigchld, 0, 0, 0, 0)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "done"

    def act() -> list[str]:
        return [clone(0), clone(new_user), call("unshare", new_user)]

    free, bound = run_both(act, place, uid)
    assert free == ["done", "done", "done"]
    assert bound == ["done", "EPERM", "EPERM"]


def test_limits_and_priorities_of_others_are_refused(uid: int, place: str) -> None:
    def act() -> dict[str, str]:
        other = os.getppid()
        nofile = resource.RLIMIT_NOFILE
        return {
            "own limit": attempt(lambda: resource.setrlimit(nofile, resource.getrlimit(nofile))),
            "own priority": attempt(lambda: os.nice(1)),
            "limit": attempt(lambda: resource.prlimit(other, nofile)),
            "priority": attempt(lambda: os.setpriority(os.PRIO_PROCESS, os.getpid(), 19)),
            "io priority": call("ioprio_set", 1, os.getpid(), 0x4004),
            "own io priority": call("ioprio_set", 1, 0, 0x4004),
        }

    def slow_all() -> list[str]:
        slow = attempt(lambda: os.setpriority(os.PRIO_USER, 0, 19))
        return [slow, call("ioprio_set", 3, 0, 0x4004)]

    free, bound = run_both(act, place, uid)
    refused = {name for name, result in bound.items() if result == "EPERM"}
    assert {name for name in bound if not name.startswith("own")} == refused
    assert all(bound[name] == "done" for name in bound if name.startswith("own"))
    control = {name for name, result in free.items() if result == "done"}
    assert {"priority", "io priority"} <= control
    # Without a control: all processes of whoever runs the tests would be slow from then on.
    assert result_of(run_bound(slow_all, place, uid)) == ["EPERM", "EPERM"]


def test_a_listener_of_ones_own_is_refused_and_a_filter_is_not(uid: int, place: str) -> None:
    allow_all = struct.pack("=HBBI", 0x06, 0, 0, seccomp.ALLOW)

    def act() -> list[str]:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        header = seccomp._Program(1, allow_all)
        number = number_of("seccomp")
        with_listener = attempt(lambda: os.close(syscall(number, 1, 1 << 3, header)))
        return [with_listener, attempt(lambda: syscall(number, 1, 0, header))]

    free, bound = run_both(act, place, uid)
    assert (free, bound) == (["done", "done"], ["EPERM", "done"])


def test_files_are_not_made_with_setuid_bits(uid: int, place: str) -> None:
    creating = os.O_CREAT | os.O_WRONLY

    def act() -> dict[str, str]:
        results = {
            "open": attempt(lambda: os.close(os.open("a", creating, 0o4755))),
            "group": attempt(lambda: os.close(os.open("b", creating, 0o2755))),
            "nameless": attempt(lambda: os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755))),
            "mknod": attempt(lambda: os.mknod("c", 0o104755)),
            "plain": attempt(lambda: os.close(os.open("d", creating, 0o755))),
            "plain nameless": attempt(
                lambda: os.close(os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o600))
            ),
            # Without O_CREAT the mode is whatever was in the register.
            "garbage": attempt(lambda: os.close(os.open("file", os.O_RDONLY, 0o6755))),
        }
        if number_of("creat"):
            results["creat"] = call("creat", b"e", 0o4755)
        for name in "abcde":
            if os.path.exists(name):
                os.unlink(name)
        return results

    free, bound = run_both(act, place, uid)
    assert set(free.values()) == {"done"}, free
    done = {name for name, result in bound.items() if result == "done"}
    assert done == {"plain", "plain nameless", "garbage"}
    assert set(bound.values()) == {"done", "EPERM"}


@pytest.mark.parametrize(("abi", "expected"), [(2, "EPERM"), (3, "done")])
def test_emptying_by_opening_for_reading_is_refused_on_old_kernels(
    uid: int, place: str, abi: int, expected: str
) -> None:
    # From the third version on Landlock refuses it.
    def act() -> list[str]:
        name = f"{place}/outside/file"
        return [
            attempt(lambda: os.close(os.open(name, os.O_RDONLY | os.O_TRUNC))),
            attempt(lambda: os.close(os.open("file", os.O_WRONLY | os.O_TRUNC))),
        ]

    assert run_both(act, place, uid, abi=abi) == (["done", "done"], [expected, "done"])


def test_opening_for_controls_only_is_refused(uid: int, place: str) -> None:
    act = lambda: attempt(lambda: os.close(os.open("/dev/null", 3)))  # noqa: E731
    assert run_both(act, place, uid) == ("done", "EPERM")


def test_terminal_and_file_controls_are_refused(uid: int, place: str) -> None:
    set_flags, get_flags = 0x40086602, 0x80086601

    def act() -> dict[str, str]:
        master, slave = os.openpty()
        results = {}
        for name, number in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCSETD", 0x5423)):
            results[name] = attempt(lambda n=number: fcntl.ioctl(slave, n, bytes(4)))
        results["TIOCGWINSZ"] = attempt(lambda: fcntl.ioctl(slave, 0x5413, bytes(8)))
        with open(f"{place}/outside/file", "rb") as file:
            old = fcntl.ioctl(file, get_flags, bytes(8))
            results["set flags"] = attempt(lambda: fcntl.ioctl(file, set_flags, old))
            results["get flags"] = attempt(lambda: fcntl.ioctl(file, get_flags, bytes(8)))
            # BTRFS_IOC_SUBVOL_CREATE: makes an entry through a folder opened for reading
            results["btrfs"] = attempt(lambda: fcntl.ioctl(file, 0x5000940E, bytes(8)))
        os.close(master)
        os.close(slave)
        return results

    free, bound = run_both(act, place, uid)
    assert {bound[n] for n in ("TIOCSTI", "TIOCLINUX", "TIOCSETD")} == {"EPERM"}
    assert bound["set flags"] == bound["btrfs"] == "ENOTSUP"
    assert bound["TIOCGWINSZ"] == bound["get flags"] == "done"
    assert free["TIOCSETD"] == free["set flags"] == "done"


@pytest.mark.parametrize("abi", [1, 7])
def test_no_lease_keeps_others_from_opening_a_file(uid: int, place: str, abi: int) -> None:
    def act() -> list[str]:
        with open(f"{place}/outside/lease", "rb") as file:
            leases = [
                call("fcntl", file.fileno(), command, fcntl.F_WRLCK)
                for command in (fcntl.F_SETLEASE, fcntl.F_SETLEASE | 1 << 32)
            ]
            return [*leases, attempt(lambda: fcntl.lockf(file, fcntl.LOCK_SH))]

    file = Path(f"{place}/outside/lease")
    file.touch()
    os.chown(file, uid, -1)  # a lease is for the owner
    free, bound = run_both(act, place, uid, abi=abi)
    assert (free, bound) == (["done"] * 3, ["EPERM", "EPERM", "done"])


def test_the_upper_half_of_an_int_does_not_hide_it(uid: int, place: str) -> None:
    high = 1 << 32

    def act() -> list[str]:
        return [
            call("ioctl", 0, 0x5412 | high, bytes(1)),
            call("socket", socket.AF_INET | high, socket.SOCK_STREAM, 0),
            call("socket", socket.AF_UNIX, socket.SOCK_DGRAM | high, 0),
        ]

    assert result_of(run_bound(act, place, uid)) == ["EPERM"] * 3


def sockets() -> dict[str, tuple[int, int, int]]:
    return {
        "stream": (socket.AF_UNIX, socket.SOCK_STREAM, 0),
        "packets": (socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC, 0),
        "datagrams": (socket.AF_UNIX, socket.SOCK_DGRAM, 0),
        "tcp": (socket.AF_INET, socket.SOCK_STREAM, 0),
        "tcp6": (socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, socket.IPPROTO_TCP),
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_UDP),
        "ping": (socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP),
        "netlink": (socket.AF_NETLINK, socket.SOCK_RAW, 0),
        "raw": (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP),
        "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
        "crypto": (38, socket.SOCK_SEQPACKET, 0),
        "machines": (40, socket.SOCK_STREAM, 0),
    }


@pytest.mark.parametrize("network", [False, True])
def test_sockets_are_local_streams_and_with_network_tcp_and_udp(
    uid: int, place: str, network: bool
) -> None:
    def act() -> dict[str, str]:
        return {
            name: attempt(lambda a=arguments: socket.socket(*a).close())
            for name, arguments in sockets().items()
        }

    free, bound = run_both(act, place, uid, network=network)
    allowed = {"stream", "packets"} | ({"tcp", "tcp6", "udp"} if network else set())
    assert {name for name, result in bound.items() if result == "done"} == allowed
    assert {result for name, result in bound.items() if name not in allowed} == {"EPERM"}
    assert {"stream", "packets", "datagrams", "tcp", "udp", "netlink"} <= {
        name for name, result in free.items() if result == "done"
    }


@pytest.mark.parametrize("network", [False, True])
def test_pairs_of_sockets_work_and_datagrams_cannot_be_sent_anywhere(
    uid: int, place: str, network: bool
) -> None:
    path = f"{place}/outside/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as victim:
        victim.bind(path)
        os.chmod(path, 0o777)

        def act() -> dict[str, str]:
            results = {}
            for name, kind in (("stream", 1), ("packets", 5), ("datagrams", 2)):
                try:
                    one, two = socket.socketpair(socket.AF_UNIX, kind)
                except OSError as error:
                    results[name] = errno.errorcode[error.errno or 0]
                    continue
                with one, two:
                    results[name] = attempt(lambda one=one: one.send(b"x"))
                    results[f"{name} to a path"] = attempt(lambda one=one: one.sendto(b"x", path))
                    results[f"{name} message to a path"] = attempt(
                        lambda one=one: one.sendmsg([b"escaped"], [], 0, path)
                    )
            return results

        free, bound = run_both(act, place, uid, network=network)
        victim.setblocking(False)
        received = []
        while True:
            try:
                received.append(victim.recv(100))
            except BlockingIOError:
                break
    assert free["stream"] == free["datagrams to a path"] == free["datagrams message to a path"]
    assert received == [b"x", b"escaped"]  # the control's
    assert bound["stream"] == bound["packets"] == "done"
    assert bound["datagrams"] == "EPERM"


def test_the_loop_of_asyncio_works(uid: int, place: str) -> None:
    # Imported before: a user may not read this Python.
    assert concurrent.futures.thread

    async def wake() -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: "woken")

    assert result_of(run_bound(lambda: asyncio.run(wake()), place, uid)) == "woken"


@pytest.mark.parametrize(("abi", "expected"), [(5, "EPERM"), (6, "done")])
def test_signals_by_ownership_of_a_file_are_refused_on_old_kernels(
    uid: int, place: str, abi: int, expected: str
) -> None:
    # From the sixth version on Landlock's scope governs them.
    fiosetown = 0x8901

    def act() -> list[str]:
        one, _ = socket.socketpair()
        return [
            attempt(lambda: fcntl.fcntl(one, fcntl.F_SETOWN, os.getpid())),
            attempt(lambda: fcntl.ioctl(one, fiosetown, struct.pack("i", os.getpid()))),
            attempt(lambda: fcntl.fcntl(one, fcntl.F_GETFL)),
        ]

    free, bound = run_both(act, place, uid, abi=abi)
    assert (free, bound) == (["done"] * 3, [expected, expected, "done"])


def test_what_programs_need_is_left_alone(uid: int, place: str) -> None:
    def act() -> dict[str, str]:
        one, two = socket.socketpair()
        with one, two:
            return {
                # With EPERM bash would think that rshd had started it, and read ~/.bashrc.
                "getpeername": attempt(one.getpeername),
                # libzmq ends itself without it.
                "scheduler": attempt(
                    lambda: os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
                ),
                "affinity": attempt(lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))),
                "passing": attempt(lambda: socket.send_fds(one, [b"x"], [0])),
                "pidfd": attempt(lambda: os.close(os.pidfd_open(os.getpid()))),
                "signal to oneself": attempt(lambda: os.kill(os.getpid(), 0)),
            }

    outcome = run_bound(act, place, uid)
    assert set(result_of(outcome).values()) == {"done"}, outcome


HEADERS = {
    "x86_64": ("asm/unistd_64.h", "x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": ("asm-generic/unistd.h",),
}


@pytest.mark.parametrize("architecture", HEADERS)
def test_the_numbers_are_those_of_the_headers(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [Path("/usr/include") / name for name in HEADERS[architecture]]
    text = next((file.read_text("utf-8") for file in files if file.exists()), None)
    if text is None:
        not_tested(f"numbers of {architecture}", "no kernel headers: linux-libc-dev")
    defined = {
        name: int(number)
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)\b", text)
    }
    monkeypatch.setattr(linux, "ARCHITECTURE", architecture)
    names = [*syscalls._NUMBERS, *syscalls._COMMON]
    ours = {name: number_of(name) for name in names}
    known = {name for name in names if name in defined}
    assert len(known) > 90, "the header was not understood"
    assert {name: ours[name] for name in known} == {name: defined[name] for name in known}
    newest = max(defined.values())
    strangers = {
        name for name in names if name not in defined and (ours[name] or newest + 1) <= newest
    }
    assert not strangers, "numbers that the header gives to nobody"


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("abi", [1, 7])
def test_the_program_is_well_formed(
    architecture: str, network: bool, abi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux, "ARCHITECTURE", architecture)
    program = seccomp.build_filter(tier=1, network=network, abi=abi)
    steps = list(struct.iter_unpack("=HBBI", program))
    assert len(steps) < 4096  # BPF_MAXINSNS
    for index, (code, yes, no, _) in enumerate(steps):
        if code != 0x06:  # a return
            assert index + 1 + max(yes, no) < len(steps)
    assert steps[-1] == (0x06, 0, 0, seccomp.ALLOW)


def test_an_unknown_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "ARCHITECTURE", "riscv64")
    with pytest.raises(OSError, match="riscv64"):
        seccomp.build_filter(tier=1, network=False, abi=7)
