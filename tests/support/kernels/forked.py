"""Starts kernels as forks of one process that has imported the packages that they need.

These imports are most of what a kernel costs, so a worker makes them once; agent-magics is in no
kernel before a cell imports it, and then with all its modules. A front end starts `stand_in.py` as
its kernel: it passes its environment, folder and outputs on to the template, and its signals to the
kernel. Whichever of the three is killed, the kernel ends.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.support import forks

_ROOT = Path(__file__).parents[3]
_STAND_IN = Path(__file__).with_name("stand_in.py")
# As in a kernel, no module is found in the folder that the process was started in.
_TEMPLATE = (
    "import sys; sys.path[0] = sys.argv[2]; from tests.support.kernels import forked; "
    "del sys.path[0]; forked.serve(sys.argv[1])"
)
# Not ipywidgets: at its import it tells the kernel of this process which messages it answers.
_MODULES = (
    *("ipykernel.kernelapp", "ipykernel.zmqshell", "ipykernel.debugger"),
    *("IPython.core.completer", "markdown_it", "pydantic", "aiohttp"),
)
# Of agent-magics: the magics, what they warm up, and where the tools are that a first cell has.
_OWN = (
    *("kernel.cells", "kernel.magics", "kernel.commands.serving"),
    *("models.transport", "models.wires.responses.model", "tools.catalog.discovery"),
)
_ENVIRONMENT = 1 << 20  # bytes that are enough for one


@functools.cache
def command() -> list[str]:
    """Return the command that starts a kernel; start the template, which ends with this process."""
    if sys.platform != "linux":
        return [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    folder = tempfile.TemporaryDirectory(prefix="agent-magics-kernels-")
    address = str(Path(folder.name, "template"))
    template = subprocess.Popen(
        [sys.executable, "-c", _TEMPLATE, address, str(_ROOT)],
        cwd=folder.name,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )

    def end() -> None:
        template.communicate()
        folder.cleanup()

    atexit.register(end)
    assert template.stdout and template.stdout.readline() == b"ready\n"
    return [sys.executable, "-I", "-S", str(_STAND_IN), address, "{connection_file}"]


def serve(address: str) -> None:
    """Fork a kernel for each stand-in that connects, until standard input ends."""
    # Read by what is imported: a kernel's parent, which it outlives by a second at most, and
    # whether its debugger warns of what is so in any kernel.
    os.environ |= {"JPY_PARENT_PID": str(os.getpid()), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    given = list(os.environ)
    for name in _MODULES:
        importlib.import_module(name)
    sys.meta_path.insert(0, _Own())
    assert len(os.listdir("/proc/self/task")) == 1  # a thread is not there in a fork
    gc.freeze()
    _Template(address, given).serve()


class _Own(MetaPathFinder, Loader):
    """Imports agent-magics, and takes it away until a kernel imports it."""

    def __init__(self) -> None:
        finders = [*sys.meta_path]
        for name in _OWN:
            importlib.import_module(f"agent_magics.{name}")
        sources = sys.modules["agent_magics.tools.catalog.sources"]
        for tool in sources.resolve_tools(None, {}, live=True):
            tool.spec.description  # noqa: B018 - derived when it is looked at
        names = [name for name in sys.modules if name.partition(".")[0] == "agent_magics"]
        self._modules = {name: sys.modules.pop(name) for name in names}
        self._spec = self._modules["agent_magics"].__spec__
        self._modules["agent_magics.files.trusted_imports"]._distrusted.clear()
        sys.meta_path[:] = finders

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name == "agent_magics" else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        sys.meta_path.remove(self)
        sys.modules.update(self._modules)
        module.__spec__ = self._spec
        if limit := os.environ.get("TESTS_DRAWN_LIMIT"):
            # A page of a busy machine is late to draw; see `pages/lab.py`.
            sys.modules["agent_magics.kernel.questions.ways"].DRAWN_LIMIT = float(limit)
        module.guard_imports()


class _Template:
    """The process that forks kernels.

    Args:
        address: where stand-ins connect to.
        given: the variables that are of this process only, not made by what it has imported.
    """

    def __init__(self, address: str, given: list[str]) -> None:
        self._given = given
        self._ready = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.bind(address)
        self._door.listen()
        self._kernels: set[int] = set()

    def serve(self) -> None:
        self._ready.register(self._door, selectors.EVENT_READ, self._start)
        self._ready.register(0, selectors.EVENT_READ, sys.exit)
        os.write(1, b"ready\n")
        try:
            while True:
                for key, _ in self._ready.select():
                    key.data()
        finally:
            for pid in self._kernels:
                os.killpg(pid, signal.SIGKILL)

    def _start(self) -> None:
        """Fork a kernel; tell its stand-in the pid, and at its end the exit status."""
        stand_in, _ = self._door.accept()
        text, outputs, *_ = socket.recv_fds(stand_in, _ENVIRONMENT, 2)
        if len(outputs) < 2:  # it was killed
            return
        pid = forks.start(lambda: _be_kernel(json.loads(text), outputs, self._given))
        for each in outputs:
            os.close(each)
        self._kernels.add(pid)
        over = os.pidfd_open(pid)
        self._ready.register(over, selectors.EVENT_READ, lambda: self._reap(pid, over, stand_in))
        self._ready.register(stand_in, selectors.EVENT_READ, lambda: self._kill(pid))
        with suppress(OSError):
            stand_in.send(b"%d" % pid)

    def _kill(self, pid: int) -> None:
        """End a kernel whose stand-in has ended, unless both ended at once: it is then reaped."""
        if pid in self._kernels:
            os.killpg(pid, signal.SIGKILL)

    def _reap(self, pid: int, over: int, stand_in: socket.socket) -> None:
        self._kernels.remove(pid)
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):
            stand_in.send(b"%d" % os.waitstatus_to_exitcode(status))
        for each in (over, stand_in):
            self._ready.unregister(each)
        os.close(over)
        stand_in.close()


def _be_kernel(wanted: dict[str, Any], outputs: list[int], given: list[str]) -> None:
    """Run a kernel in this process as if it had been started anew."""
    (nothing, _) = os.pipe()
    for number, each in enumerate((nothing, *outputs)):
        os.dup2(each, number)
    os.closerange(3, 1 << 12)
    for name in given:
        del os.environ[name]
    os.environ |= wanted["environment"]
    os.chdir(wanted["folder"])
    tempfile.tempdir = None
    sys.argv[:] = ["ipykernel_launcher.py", "-f", *wanted["arguments"]]
    sys.orig_argv[:] = [sys.executable, "-m", "ipykernel_launcher", *sys.argv[1:]]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    try:
        importlib.import_module("ipykernel.kernelapp").launch_new_instance()
    except Exception:  # another process has taken one of its ports meanwhile
        # At once, so that its front end starts another: with some of its sockets open a kernel
        # would wait for ever at its end, and say nothing.
        traceback.print_exc()
        os._exit(1)
    finally:
        # What an interpreter does at its end.
        threading._shutdown()
        atexit._run_exitfuncs()
