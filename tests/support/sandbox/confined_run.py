"""Runs one function or program confined as by the launcher, with its questions answered."""

import errno
import fcntl
import json
import os
import select
import signal
import socket
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from agent_magics.exec.launcher import confine, linux
from agent_magics.exec.launcher.notifications.notifier import SeccompNotifier
from agent_magics.exec.launcher.rules import landlock, seccomp
from agent_magics.exec.launcher.rules.privileges import give_up_privileges
from agent_magics.exec.launcher.tree import descendants, kill_tree
from agent_magics.exec.launcher.wire import Confinement, SpawnRequest
from tests.support import forks
from tests.support.sandbox.container import deny_namespaces
from tests.support.users import ME, become, give

_DEADLINE = 30_000  # milliseconds


@dataclass(frozen=True)
class Outcome:
    """The result of a run: exit status, output, refusals, surviving processes."""

    status: int
    output: str
    refused: list[str]
    failure: str
    leftovers: int = 0


def run_confined(
    what: Callable[[], Any] | list[str],
    confinement: Confinement | None,
    folder: str,
    *,
    uid: int = ME,
    abi: int | None = None,
    container: bool = False,
    env: dict[str, str] | None = None,
    tty_slave: int | None = None,
    layer: str = "all",
) -> Outcome:
    """Run `what` in `folder`; a function's result is printed as JSON.

    Args:
        what: a function without arguments, or a command line.
        confinement: the sandbox's rules; None runs it free, as a control.
        folder: the folder to run in.
        uid: the user id; ME is the user of the tests.
        abi: Landlock's version to imitate.
        container: whether to run below the filter of a container that forbids user namespaces.
        env: environment variables of the program.
        tty_slave: its terminal.
        layer: "landlock" or "seccomp" (with the notifier) alone, or "all".
    """

    def supervise() -> Outcome:
        _prepare(uid, abi, container)
        return _Supervisor(what, confinement, folder, env, tty_slave, layer).run()

    return forks.call(supervise)


def result_of(outcome: Outcome) -> Any:
    """Return the function's result; fail if it did not succeed."""
    assert not outcome.failure, outcome.failure
    assert outcome.status == 0, outcome
    return json.loads(outcome.output)


def attempt(act: Callable[[], Any]) -> str:
    """Return the name of the error that `act` raises, or "done"."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    except termios.error as error:
        return errno.errorcode[error.args[0]]
    return "done"


def _prepare(uid: int, abi: int | None, container: bool) -> None:
    become(uid)
    if abi is not None:
        os.environ["AGENT_MAGICS_TEST_ABI"] = str(abi)
    if container:
        deny_namespaces()
    linux.become_subreaper()
    linux.forbid_inspection()


class _Supervisor:
    def __init__(
        self,
        what: Any,
        confinement: Any,
        folder: str,
        env: Any,
        tty_slave: int | None,
        layer: str,
    ):
        self.layer = layer
        self.what, self.confinement, self.folder = what, confinement, folder
        self.env = env or {"PATH": os.environ["PATH"], "HOME": folder, "LC_ALL": "C.UTF-8"}
        self.tty_slave = tty_slave
        self.notifier: SeccompNotifier | None = None
        self.words = b""
        self.output = b""

    def run(self) -> Outcome:
        prepared = confine.prepare(self.confinement) if self.confinement else None
        channel, far_end = socket.socketpair()
        output, output_writer = os.pipe()
        parent = os.getpid()
        pid = forks.start(lambda: self._start(prepared, far_end, output_writer, parent))
        far_end.close()
        os.close(output_writer)
        status = self._serve(pid, channel, output)
        left = len(descendants(os.getpid()))
        kill_tree({})
        return Outcome(
            status=os.waitstatus_to_exitcode(status),
            output=self.output.decode("utf-8", "replace"),
            refused=self.notifier.refused if self.notifier else [],
            failure=self.words.removeprefix(b"R").decode(),
            leftovers=left,
        )

    def _start(self, prepared: Any, channel: socket.socket, writer: int, parent: int) -> None:
        try:
            linux.die_with_parent(parent, signal.SIGKILL)
            if self.tty_slave is not None:
                os.dup2(self.tty_slave, 0)
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.dup2(writer, 1)
            if not callable(self.what):
                os.dup2(writer, 2)
            folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
            os.chdir(self.folder)
            if prepared is not None:
                tty = self.tty_slave is not None
                request = SpawnRequest(
                    (), self.folder, self.env, tty=tty, confinement=self.confinement
                )
                listener = self._confine(prepared, request, folder)
                if listener is not None:
                    confine.give_listener(channel, b"R", listener, self.confinement.network)
                    os.close(listener)
            else:
                linux.prctl(linux.PR_SET_DUMPABLE, 1)
            channel.close()
            linux.close_on_exec(3)
            self._act()
        except BaseException as error:
            with suppress(OSError):
                channel.sendall(f"{type(error).__name__}: {error}".encode())
            raise

    def _confine(self, prepared: Any, request: SpawnRequest, folder: int) -> int | None:
        if self.layer == "all":
            return confine.enter(prepared, request, folder)
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        give_up_privileges()
        if self.layer == "landlock":
            landlock.restrict_self(prepared.ruleset)
            return None
        return seccomp.install(prepared.program)

    def _act(self) -> None:
        if not callable(self.what):
            os.execvpe(self.what[0], self.what, self.env)
        data = json.dumps(self.what()).encode()
        while data:
            data = data[os.write(1, data) :]

    def _serve(self, pid: int, channel: socket.socket, output: int) -> int:
        end = os.pidfd_open(pid)
        poll = select.poll()
        for fd in (end, channel.fileno(), output):
            poll.register(fd, select.POLLIN)
        while True:
            events = poll.poll(_DEADLINE)
            ready = [fd for fd, _ in events]
            assert ready, "nothing happened for 30 seconds"
            if channel.fileno() in ready and self._hear(channel, poll):
                poll.unregister(channel)
            if self.notifier is not None and self.notifier.fileno() in ready:
                self.notifier.answer()
            if output in ready:
                data = os.read(output, 1 << 16)
                self.output += data
                if not data:
                    poll.unregister(output)
            elif end in ready:
                return os.waitpid(pid, 0)[1]

    def _hear(self, channel: socket.socket, poll: select.poll) -> bool:
        data, fds, _, _ = socket.recv_fds(channel, 4096, 1)
        tree = lambda: descendants(os.getpid())  # noqa: E731
        listener, rest = confine.take_listener(channel, data, fds, tree)
        if listener is not None:
            self.notifier = SeccompNotifier(listener, self.confinement, tree)
            poll.register(self.notifier.fileno(), select.POLLIN)
        self.words += rest
        return not data


@contextmanager
def ground(uid: int = ME) -> Iterator[str]:
    """Make a folder that every user can enter, unlike pytest's; remove it at the end.

    Args:
        uid: its owner; as root it may be any user.
    """
    import shutil  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    folder = os.path.realpath(tempfile.mkdtemp(prefix="confined-"))
    try:
        os.chmod(folder, 0o755)
        for name in ("project", "outside", "secrets"):
            os.mkdir(os.path.join(folder, name))
        for name in ("outside/file", "secrets/key", "project/file"):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(name)
        for parent, _, files in os.walk(folder):
            for name in [".", *files]:
                give(uid, os.path.join(parent, name))
        yield folder
    finally:
        shutil.rmtree(folder)
