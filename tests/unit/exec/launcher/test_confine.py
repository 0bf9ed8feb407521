"""Confinement as a whole: prepared once, entered often, at every version, as root and as a user."""

import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_magics.exec.launcher import confine
from agent_magics.exec.launcher.linux import syscall
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement
from tests.support import forks
from tests.support.needs import lacking
from tests.support.sandbox.confined_run import (
    Outcome,
    attempt,
    ground,
    result_of,
    run_confined,
)
from tests.support.users import USER, become, give

PROGRAM = "/usr/bin/python3"  # unlike the one of the tests, any user may run it


def confinement_of(place: str, tier: int = 1, **more: Any) -> Confinement:
    return Confinement(tier, (f"{place}/project",), hidden=(f"{place}/secrets",), **more)


def run_in(place: str, uid: int, what: Callable[[], Any] | list[str], **more: Any) -> Outcome:
    tier, network = more.pop("tier", 1), more.pop("network", False)
    confinement = confinement_of(place, tier, network=network)
    env = {"PATH": "/usr/bin:/bin", "HOME": f"{place}/project", "TMPDIR": f"{place}/project"}
    return run_confined(what, confinement, f"{place}/project", uid=uid, env=env, **more)


def settle() -> None:
    """Wait until a change is older than a tick of the kernel's clock."""
    end = time.monotonic() + 0.12
    while time.monotonic() < end:
        signal.sigtimedwait([], end - time.monotonic())


def test_the_second_time_is_cheap_and_a_change_is_noticed() -> None:
    # Away from /tmp, where others make files all the time.
    with ground() as place:
        base = Path(place)
        settle()
        confinement = Confinement(1, (str(base / "project"),))
        first = confine.prepare(confinement)
        assert confine.prepare(confinement) is first
        (base / "project").rename(base / "old")
        (base / "project").mkdir()
        second = confine.prepare(confinement)
        assert second is not first
        confine.forget(confinement)


def test_what_is_prepared_is_bounded() -> None:
    with ground() as place:
        before = len(os.listdir("/proc/self/fd"))
        made = [Confinement(1, (f"{place}/project", f"/nowhere/{n}")) for n in range(40)]
        for confinement in made:
            confine.prepare(confinement)
        assert len(os.listdir("/proc/self/fd")) <= before + confine._MOST_PREPARED
        for confinement in made:
            confine.forget(confinement)
        assert len(os.listdir("/proc/self/fd")) <= before


def test_something_new_beside_what_is_hidden_is_readable_for_the_next_command(
    uid: int, place: str
) -> None:
    act = lambda: attempt(lambda: Path(f"{place}/new").read_bytes())  # noqa: E731
    confine.prepare(confinement_of(place))  # in this process, whose cache the children inherit
    Path(f"{place}/new").write_text("x", encoding="utf-8")
    assert result_of(run_in(place, uid, act)) == "done"
    confine.forget(confinement_of(place))


ATTACKS: dict[str, Callable[[str], object]] = {
    "write": lambda place: Path(f"{place}/outside/new").write_text("x", encoding="utf-8"),
    "append": lambda place: os.close(os.open(f"{place}/outside/file", os.O_WRONLY)),
    "truncate": lambda place: os.truncate(f"{place}/outside/file", 1),
    "empty": lambda place: os.close(os.open(f"{place}/outside/file", os.O_RDONLY | os.O_TRUNC)),
    "chmod": lambda place: os.chmod(f"{place}/outside/file", 0o640),
    "fchmod": lambda place: _fchmod(f"{place}/outside/file"),
    "chown": lambda place: os.chown(f"{place}/outside/file", -1, os.getgid()),
    "xattr": lambda place: os.setxattr(f"{place}/outside/file", "user.a", b"b"),
    "setuid": lambda place: os.chmod("file", 0o4755),
    "secret": lambda place: Path(f"{place}/secrets/key").read_bytes(),
    "signal": lambda place: os.kill(int(os.environ["TEST_VICTIM"]), 0),
    "trace": lambda place: _trace(int(os.environ["TEST_VICTIM"])),
    "memory": lambda place: Path(f"/proc/{os.environ['TEST_VICTIM']}/mem").open("rb").close(),
    "environment": lambda place: Path(f"/proc/{os.environ['TEST_VICTIM']}/environ").read_bytes(),
    "internet": lambda place: socket.socket(socket.AF_INET).close(),
    "netlink": lambda place: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
    "local socket": lambda place: _connect(f"{place}/outside/socket"),
    "abstract socket": lambda place: _connect(f"\0test-confine-{os.environ['TEST_VICTIM']}"),
    "namespace": lambda place: syscall(number_of("unshare"), 0x10000000),
    "delete": lambda place: os.unlink(f"{place}/outside/file"),
}


def _trace(pid: int) -> None:
    ptrace_seize = 0x4206
    syscall(number_of("ptrace"), ptrace_seize, pid, 0, 0)


def _fchmod(path: str) -> None:
    with open(path, "rb") as file:
        os.fchmod(file.fileno(), 0o600)


def _connect(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(name)


# Of Landlock the oldest version and the newest; those between are long to go through. A container
# without user namespaces has no tier 2; see test_probe.
@pytest.mark.parametrize(
    ("tier", "abi", "container"),
    [
        *((1, abi, container) for abi in (1, 7) for container in (False, True)),
        *((2, abi, False) for abi in (1, 7)),
        *(
            pytest.param(1, abi, container, marks=pytest.mark.long)
            for abi in (2, 4, 6)
            for container in (False, True)
        ),
    ],
)
def test_attacks_are_refused_and_work_goes_on(
    uid: int, place: str, tier: int, abi: int, container: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_a_victim() -> None:
        become(uid)
        os.execv("/bin/sleep", ["sleep", "60"])  # else it may not be traced

    def act() -> dict[str, str]:
        results = {name: attempt(lambda do=do: do(place)) for name, do in ATTACKS.items()}
        results["work"] = attempt(lambda: Path("made").write_text("x", encoding="utf-8"))
        results["own mode"] = attempt(lambda: os.chmod("made", 0o600))
        results["own socket"] = attempt(_use_own_socket)
        return results

    with (
        forks.child(be_a_victim) as victim,
        socket.socket(socket.AF_UNIX) as one,
        socket.socket(socket.AF_UNIX) as two,
    ):
        monkeypatch.setenv("TEST_VICTIM", str(victim))
        one.bind(f"{place}/outside/socket")
        os.chmod(f"{place}/outside/socket", 0o777)
        two.bind(f"\0test-confine-{victim}")
        for server in (one, two):
            server.listen()
        bound = result_of(run_in(place, uid, act, tier=tier, abi=abi, container=container))
        for name in ("made", "own"):
            Path(f"{place}/project/{name}").unlink()
        free = result_of(run_confined(act, None, f"{place}/project", uid=uid))
    assert {name for name in bound if bound[name] == "done"} == {"work", "own mode", "own socket"}
    blocked = {"namespace": "EPERM"} if lacking("tier 2") else {}
    assert free == dict.fromkeys(free, "done") | blocked


def _use_own_socket() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("own")
        server.listen()
        _connect("own")


@pytest.mark.needs("root")
@pytest.mark.parametrize("tier", [1, 2])
def test_root_is_no_more_than_another(tier: int) -> None:
    with ground() as place:
        stranger = Path(f"{place}/project/stranger")
        stranger.write_text("x", encoding="utf-8")
        give(USER, str(stranger))
        stranger.chmod(stat.S_IRUSR)
        script = (
            "grep -E '^Cap|NoNew' /proc/self/status; cat stranger || echo unreadable; "
            "sh -c 'grep CapEff /proc/self/status'; mknod d b 7 0 || echo no device"
        )
        outcome = run_in(place, 0, ["sh", "-c", script], tier=tier)
        lines = outcome.output.splitlines()
        capabilities = [line.split()[1] for line in lines if line.startswith("Cap")]
        assert len(capabilities) == 6
        assert set(capabilities) == {"0" * 16}
        assert "NoNewPrivs:\t1" in lines
        assert {"unreadable", "no device"} <= set(lines)


EVERYDAY = {
    "manager": """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        shared = manager.dict(a=1)
        print(shared["a"])
""",
    "forkserver": """
import multiprocessing
def double(x):
    return 2 * x
if __name__ == "__main__":
    multiprocessing.set_start_method("forkserver")
    with multiprocessing.Pool(2) as pool:
        print(sum(pool.map(double, [0, 0.5])) == 1.0 and 1)
""",
    "terminal": """
import os, pty
pid, master = pty.fork()
if pid == 0:
    os.execlp("sh", "sh", "-c", "test -t 0 && echo 1 > /dev/tty; read x; exit 6")
assert os.fdopen(os.dup(master), "rb").readline() == b"1\\r\\n"
os.write(master, b"\\n")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) - 5)
""",
    "asyncio": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("true")
    print(await process.wait() + 1)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize(("tier", "abi"), [(1, 1), (1, 7), (2, 7)])
@pytest.mark.parametrize("name", EVERYDAY)
def test_python_works_with_processes_and_terminals(
    uid: int, place: str, tier: int, abi: int, name: str, network: bool
) -> None:
    script = Path(f"{place}/project/script.py")
    script.write_text(EVERYDAY[name], encoding="utf-8")
    os.chmod(script, 0o644)
    outcome = run_in(place, uid, [PROGRAM, str(script)], tier=tier, abi=abi, network=network)
    assert (outcome.status, outcome.output) == (0, "1\n"), outcome
    assert outcome.refused == []


@pytest.mark.parametrize(("tier", "abi"), [(1, 1), (1, 7), (2, 7)])
def test_archives_and_copies_keep_times_and_modes(
    uid: int, place: str, tier: int, abi: int
) -> None:
    script = (
        "mkdir d && touch -d 2001-02-03 d/f && chmod 640 d/f && tar cf t.tar d && rm -r d && "
        "tar xf t.tar && cp -p d/f g && install -m 750 d/f h && stat -c '%a %.10y' d/f g h"
    )
    outcome = run_in(place, uid, ["sh", "-c", script], tier=tier, abi=abi)
    assert outcome.output.splitlines()[:2] == ["640 2001-02-03"] * 2, outcome
    assert outcome.output.splitlines()[2].startswith("750 ")
    assert outcome.refused == []


@pytest.mark.parametrize(("tier", "abi"), [(1, 1), (1, 7), (2, 7)])
def test_its_own_terminal_may_be_opened_anew_and_no_other(
    uid: int, place: str, tier: int, abi: int
) -> None:
    terminals = [os.openpty() for _ in range(2)]
    others = os.ttyname(terminals[1][1])
    for _, slave in terminals:
        give(uid, os.ttyname(slave))
    try:

        def act() -> list[str]:
            return [
                attempt(lambda: Path("/dev/stdin").write_bytes(b"own")),
                attempt(lambda: Path("/dev/tty").write_bytes(b"tty")),
                attempt(lambda: Path(others).write_bytes(b"escaped")),
                str(os.tcgetpgrp(0) == os.getpgrp()),
            ]

        outcome = run_in(place, uid, act, tier=tier, abi=abi, tty_slave=terminals[0][1])
        results = result_of(outcome)
        assert results[:2] == ["done", "done"]
        assert results[2] in ("EACCES", "ENOENT")
        assert results[3] == "True"
        assert os.read(terminals[0][0], 6) == b"owntty"
    finally:
        for fds in terminals:
            for fd in fds:
                os.close(fd)


@pytest.mark.parametrize("tier", [1, 2])
def test_a_writable_file_may_be_written_and_its_folder_not(uid: int, place: str, tier: int) -> None:
    confinement = Confinement(tier, (f"{place}/project", f"{place}/outside/file"))

    def act() -> list[str]:
        new = attempt(lambda: Path(f"{place}/outside/new").write_bytes(b"x"))
        return [attempt(lambda: Path(f"{place}/outside/file").write_bytes(b"changed")), new]

    outcome = run_confined(act, confinement, f"{place}/project", uid=uid)
    assert result_of(outcome) == ["done", "EACCES" if tier == 1 else "EROFS"]
    assert Path(f"{place}/outside/file").read_bytes() == b"changed"
