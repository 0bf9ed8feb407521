"""Makes a scratch world to attack: an outside folder, a home, secrets, sockets, processes."""

import contextlib
import ctypes
import hashlib
import hmac
import json
import os
import resource
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import Any

from tests.support.attacks.syscalls import LIBC, syscall
from tests.support.attacks.table import DEEP, ROWS, Row

_PATIENCE = 2.0  # seconds for what arrives a moment after the attack (a signal, a datagram)
_REPOSITORY = {
    "HEAD": "ref: refs/heads/main\n",
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "hooks/pre-commit.sample": "#!/bin/sh\n",
    "info/exclude": "\n",
    "objects/info/alternates": "",
    "refs/heads/.keep": "",
}
_MESSAGE_SIZE = 64
_NOTEBOOK = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}\n'


class Mailbox:
    """Collects the words that arrive at a set of sockets, on a thread."""

    def __init__(self) -> None:
        self.words: set[str] = set()
        self.key = secrets.token_hex(16)
        self._doors: dict[int, tuple[socket.socket, bool]] = {}
        self._lock = threading.Lock()
        self._ending, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def open(self, family: int, kind: int, address: Any, *, signed: bool = False) -> Any:
        """Listen at `address` and return the actual address."""
        door = socket.socket(family, kind)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET and kind == socket.SOCK_STREAM:
            door.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        door.bind(address)
        if kind == socket.SOCK_STREAM:
            door.listen(1000)
        self._doors[door.fileno()] = (door, signed)
        return door.getsockname()

    def start(self) -> None:
        """Start the thread; no socket is opened afterwards."""
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._end.close()
        self._thread.join()
        for door, _ in self._doors.values():
            door.close()

    def _listen(self) -> None:
        waiting = select.poll()
        for descriptor in (*self._doors, self._ending.fileno()):
            waiting.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _ in waiting.poll():
                if descriptor == self._ending.fileno():
                    self._ending.close()
                    return
                self._take(*self._doors[descriptor])

    def _take(self, door: socket.socket, signed: bool) -> None:
        with contextlib.suppress(OSError):
            if door.type == socket.SOCK_DGRAM:
                word = door.recv(1000).decode(errors="replace")
            else:
                guest, _ = door.accept()
                with guest:
                    guest.settimeout(_PATIENCE)
                    word = guest.recv(1000).decode(errors="replace")
            if signed:
                signature, _, word = word.partition(" ")
                right = hmac.new(self.key.encode(), word.encode(), hashlib.sha256).hexdigest()
                if not hmac.compare_digest(signature, right):
                    return
            self.words.add(word)


_BESIDE = 300  # folders that stand before the deepest one


def share(name: str, secret: bytes) -> dict[str, Any]:
    """Make what other processes find: two files, shared memory and a message queue.

    Args:
        name: of the campaign's folder; by it `remove_shared` finds them.
        secret: what stands in them, but in the file that attacks write.

    Returns:
        The facts about them.
    """
    written, read = _shared_files(name)
    written.touch(mode=0o600)
    read.write_bytes(secret)
    key = _memory_key(name)
    identifier = LIBC.shmget(key, 4096, 0o1600)  # IPC_CREAT
    ctypes.memmove(LIBC.shmat(identifier, None, 0), secret, len(secret))
    queue = syscall("mq_open", name.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    syscall("mq_send", queue, secret, len(secret), 0, None)
    os.close(queue)
    facts = {"shared": str(written), "shared_memory": str(read)}
    return facts | {"memory_key": key, "queue": name}


def remove_shared(name: str) -> None:
    """Remove what `share` made, also in a process that was killed."""
    for file in _shared_files(name):
        file.unlink(missing_ok=True)
    LIBC.shmctl(LIBC.shmget(_memory_key(name), 0, 0), 0, None)  # IPC_RMID
    with contextlib.suppress(FileNotFoundError):
        syscall("mq_unlink", name.encode())


def _shared_files(name: str) -> tuple[Path, Path]:
    return Path(f"/tmp/{name}.shared"), Path(f"/dev/shm/{name}")


def _memory_key(name: str) -> int:
    return zlib.crc32(name.encode()) % (1 << 30) + 1


class Scene:
    """The world below one folder, in which this process plays the notebook kernel.

    Attributes:
        facts: what attacks may know of it.
        mailbox: the words that arrived at its sockets.
    """

    def __init__(self, root: Path, canary: str, largest_file: int) -> None:
        self._canary = canary
        self.root = root
        self.workspace, self.repository = root / "workspace", root / "repository"
        self.home, self.outside = root / "home", root / "outside"
        self.mailbox = Mailbox()
        self._closing = contextlib.ExitStack()
        folders = (self.workspace, self.repository, self.home, self.outside)
        self.facts: dict[str, Any] = {folder.name: str(folder) for folder in folders}
        self.facts |= {"root": str(root), "kernel": os.getpid(), "largest_file": largest_file}
        self.facts |= {name: str(root / name) for name in ("setuid_cat", "of_root")}
        self._make_folders()
        self._make_memory()
        self._make_descriptors()
        self._make_sockets()
        self._make_processes()
        self._before = {number: self._look(row) for number, row in ROWS.items()}

    def save_facts(self) -> str:
        """Write the facts into the workspace and return the file's path."""
        path = self.workspace / "world.json"
        path.write_text(json.dumps(self.facts), encoding="utf-8")
        return str(path)

    def close(self) -> None:
        """End the processes and remove what is outside the folder."""
        self._closing.close()
        self.mailbox.close()

    # -- making it --------------------------------------------------------------------------------

    def _make_folders(self) -> None:
        files = {
            "home/.ssh/id_rsa": self._canary,
            "home/.aws/credentials": self._canary,
            "home/.bashrc": "# the person's\n",
            "home/.jupyter/jupyter_config.py": "# the person's\n",
            "workspace/.env": f"KEY={self._canary}\n",
            f"{DEEP}/.env": f"KEY={self._canary}\n",
            "workspace/nb/open.ipynb": _NOTEBOOK,
            "repository/nb/open.ipynb": _NOTEBOOK,
        }
        folders = (
            *(f"workspace/aa/{number}" for number in range(_BESIDE)),
            "home/.ipython/startup",
            "home/.config/systemd/user",
            "outside/lib",
            "outside/bin",
        )
        for place in folders:
            (self.root / place).mkdir(parents=True)
        for row in ROWS.values():
            if row.target == f"outside/row{row.number}":
                files[row.target] = "untouched\n"
        for git in ("workspace/.git", "repository/.git", f"{DEEP}/.git"):
            files |= {f"{git}/{name}": text for name, text in _REPOSITORY.items()}
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        os.link(self.workspace / ".env", self.workspace / "aa/7/second-name")
        os.link(self.home / ".ssh/id_rsa", self.workspace / "aa/8/second-name")
        self.facts["leash"] = str(self.workspace / "leash")
        os.mkfifo(self.facts["leash"])

    def _make_memory(self) -> None:
        secret = self._canary.encode()
        self._buffer = ctypes.create_string_buffer(secret, 256)
        self._scratch = ctypes.create_string_buffer(256)
        self.facts["address"] = ctypes.addressof(self._buffer)
        self.facts["scratch_address"] = ctypes.addressof(self._scratch)
        # Where Yama lets only parents look (ptrace_scope 1), whoever wants may look at this one.
        LIBC.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER
        name = self.root.parent.name
        self._closing.callback(remove_shared, name)
        self.facts |= share(name, secret)

    def _make_descriptors(self) -> None:
        for name, text in (
            ("unlinked_fd", self._canary),
            ("inherited", f"inherited {self._canary}"),
        ):
            file = tempfile.TemporaryFile(dir=self.root)  # noqa: SIM115  (closed with the scene)
            file.write(text.encode())
            file.flush()
            os.set_inheritable(file.fileno(), name == "inherited")
            self._closing.callback(file.close)
            self.facts[name] = file.fileno()
        near_end, far_end = socket.socketpair()
        far_end.send(self._canary.encode())
        self._closing.callback(far_end.close)
        self._closing.callback(near_end.close)
        self.facts["socket_fd"] = near_end.fileno()
        self._master, slave = os.openpty()
        os.set_blocking(self._master, False)
        self.facts["terminal"] = os.ttyname(slave)
        self._closing.callback(os.close, slave)
        self._closing.callback(os.close, self._master)

    def _make_sockets(self) -> None:
        internet, unix = socket.AF_INET, socket.AF_UNIX
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        box, local = self.mailbox, ("127.0.0.1", 0)
        self.facts["tcp_port"] = box.open(internet, stream, local)[1]
        self.facts["udp_port"] = box.open(internet, datagram, local)[1]
        self.facts["abstract"] = f"agent-magics-attack-{os.getpid()}"
        box.open(unix, stream, f"\0{self.facts['abstract']}")
        for name, kind in (("unix_stream", stream), ("unix_datagram", datagram)):
            self.facts[name] = str(self.outside / name)
            box.open(unix, kind, self.facts[name])
        if os.geteuid() == 0:  # only root may serve port 80; an address of its own, so no clash
            high, low = divmod(os.getpid() % 65000, 256)
            self.facts["web_address"] = f"127.9.{high}.{low}"
            box.open(internet, stream, (self.facts["web_address"], 80))
        kernel = box.open(internet, stream, local, signed=True)[1]
        runtime = self.home / ".local/share/jupyter/runtime"
        runtime.mkdir(parents=True)
        connection = {"ip": "127.0.0.1", "shell_port": kernel, "key": box.key}
        self.facts["connection_file"] = str(runtime / "kernel-4711.json")
        connection["canary"] = self._canary
        Path(self.facts["connection_file"]).write_text(json.dumps(connection), encoding="utf-8")
        box.start()

    def _make_processes(self) -> None:
        wanted = [n for n, row in ROWS.items() if row.seen_by in ("signalled", "tuned")]
        self._victims = {number: self._start_victim() for number in (*wanted, 26)}
        self._start_victim(f"--token={self._canary}")
        self.facts["victims"] = {str(n): victim.pid for n, victim in self._victims.items()}

    def _start_victim(self, *arguments: str) -> "subprocess.Popen[bytes]":
        code = ("sh", "-c", "read nothing", *arguments)  # ends with this process
        victim = subprocess.Popen(code, stdin=subprocess.PIPE)
        self._closing.callback(self._end_victim, victim)
        return victim

    @staticmethod
    def _end_victim(victim: "subprocess.Popen[bytes]") -> None:
        victim.kill()
        victim.wait()
        victim.stdin.close()

    # -- looking what became of it ----------------------------------------------------------------

    def worked(self, row: Row, evidence: str, *, patient: bool) -> bool:
        """Return whether an attack succeeded.

        Args:
            row: the attack.
            evidence: what its program returned.
            patient: whether to wait for an effect that shows after a moment.
        """
        if row.seen_by == "secret":
            return self._canary in evidence
        if row.seen_by == "reached":
            return bool(evidence)
        end = time.monotonic() + (_PATIENCE if patient else 0.0)
        while not (seen := self._seen(row)) and time.monotonic() < end:
            time.sleep(0.005)  # polled, since nothing signals an effect that may never happen
        return seen

    def _seen(self, row: Row) -> bool:
        if row.seen_by == "received":
            return f"row{row.number}" in self.mailbox.words or self._on_terminal(row)
        return self._look(row) != self._before[row.number]

    def _on_terminal(self, row: Row) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.mailbox.words |= set(os.read(self._master, 1000).decode().split())
        return f"row{row.number}" in self.mailbox.words

    def _look(self, row: Row) -> object:
        if row.seen_by == "changed":
            return _look_at_file(self._path(row.target))
        if row.seen_by in ("signalled", "tuned"):
            return _look_at_process(self._victims[row.number])
        return None

    def _path(self, target: str) -> Path:
        if target.startswith("@"):
            return Path(self.facts[target.removeprefix("@")])
        return self.root / target


def _look_at_file(path: Path) -> object:
    """Return all state of a file that can change, without its access time."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    content = path.read_bytes() if path.is_file() else b""
    return (
        facts.st_mode,
        facts.st_uid,
        facts.st_gid,
        facts.st_mtime_ns,
        facts.st_ctime_ns,
        content,
    )


def _look_at_process(victim: "subprocess.Popen[bytes]") -> object:
    """Return whether a process lives or is stopped, and its priority."""
    if victim.poll() is not None:
        return "ended"
    pid = victim.pid
    state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    if state == "T":
        os.kill(pid, signal.SIGCONT)
        return "stopped"
    tuned = Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii")
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    return tuned, limits, nice, os.sched_getaffinity(pid), os.sched_getscheduler(pid)


def make_setuid_cat(root: Path) -> None:
    """As root: put a setuid program there that reads as root."""
    shutil.copy(shutil.which("cat") or "/bin/cat", root / "setuid_cat")
    (root / "setuid_cat").chmod(0o4755)


def make_file_of_root(root: Path, canary: str) -> None:
    """As root: put a file there that only root may read."""
    (root / "of_root").write_text(canary, encoding="utf-8")
    (root / "of_root").chmod(0o600)
