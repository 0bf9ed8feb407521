"""Starts a language server in the sandbox, and measures its memory.

Law: a server reads the project and the environment, writes only a temporary folder of its own, and
has no network. So whatever a project's settings make it run (an interpreter, plugins) runs there.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from agent_magics.exec.environment import command_environment, confined_environment
from agent_magics.exec.launcher.tree import descendants
from agent_magics.exec.launcher.wire import Confinement
from agent_magics.exec.launcher_client import current_tier, shared_launcher
from agent_magics.exec.process import Process
from agent_magics.exec.sandbox.plan import build_confinement
from agent_magics.exec.temporary_files import remove_tree, scratch_folder
from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.servers.specs import ServerSpec


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where servers work, and what they may read.

    Attributes:
        roots: the folders of the workspace.
        needs_sandbox: whether a server may only be started in the sandbox.
        unreadable: returns further files and folders that it may not read.
    """

    roots: tuple[Path, ...]
    needs_sandbox: bool = True
    unreadable: Callable[[], tuple[str, ...]] = tuple


def start_process(spec: ServerSpec, root: Path, place: Workplace) -> Process:
    """Start a server; its pipes are the caller's.

    Args:
        spec: the server.
        root: the folder it works in.
        place: the workspace.

    Raises:
        RespondToModel: it could not be started, or there is no sandbox here.
        FatalError: the launcher of commands does not run.
        OSError: there is no place for its temporary folder.
    """
    with ExitStack() as failing:
        temporary = tempfile.mkdtemp(prefix="language-server-", dir=scratch_folder())
        failing.callback(remove_tree, temporary)
        environment = {**command_environment(os.environ), **spec.env}
        environment = {
            **confined_environment(environment, temporary),
            # Python looks for modules in the working folder, where a model can write.
            "PYTHONSAFEPATH": "1",
            # A home's cache may not be written, by which Jedi's answers are silently empty.
            "XDG_CACHE_HOME": temporary,
        }
        process = shared_launcher().spawn(
            spec.argv,
            cwd=root,
            env=environment,
            stdin=True,
            held=True,
            confinement=_confinement(root, place, temporary),
        )
        at_end = failing.pop_all()
    process.on_end(lambda _: at_end.close())
    return process


def _confinement(root: Path, place: Workplace, temporary: str) -> Confinement | None:
    tier = current_tier()
    if not tier:
        if place.needs_sandbox:
            raise RespondToModel(
                "Language servers run only in the sandbox, which this machine has not (%agent "
                'doctor says why); sandbox="danger-full-access" starts them without.'
            )
        return None
    return build_confinement(
        tier=tier,
        policy="read-only",
        roots=(*place.roots, root),
        cwd=root,
        tmp=temporary,
        unreadable=place.unreadable(),
    )


def memory_of(process: Process) -> int:
    """Return the bytes of memory that a process and all it has started hold; 0 if unknown."""
    return sum(map(_resident, (process.pid, *descendants(process.pid))))


def _resident(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        pages = Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0
