"""The one entry to confinement: prepared once in the launcher, entered between fork and exec.

Three layers, each alone: Landlock (files), seccomp (system calls), and the supervisor's answers to
what neither can judge (`Notary`). Tier 2 puts namespaces around them.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_magics.backends.launcher import landlock, namespaces, seccomp
from agent_magics.backends.launcher.descriptors import take_descriptor
from agent_magics.backends.launcher.linux import PR_SET_DUMPABLE, landlock_abi, prctl
from agent_magics.backends.launcher.notify import Notary
from agent_magics.backends.launcher.privileges import give_up_privileges
from agent_magics.backends.launcher.wire import Confinement, SpawnRequest

__all__ = ["Notary", "Prepared", "enter", "forget", "give_listener", "prepare", "take_listener"]

_MOST_PREPARED = 16
_prepared: dict[Confinement, "Prepared"] = {}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A confinement, ready to be entered any number of times.

    Attributes:
        confinement: what it was made for.
        plan: what Landlock is to grant.
        program: the seccomp filter.
        ruleset: Landlock's, as a descriptor; None in tier 2, where each command has mounts of its
            own, which the rules must name.
    """

    confinement: Confinement
    plan: landlock.Plan
    program: bytes
    ruleset: int | None


def prepare(confinement: Confinement) -> Prepared:
    """Prepare `confinement`, in the launcher; cheap when nothing has changed since the last time.

    Raises:
        OSError: there is no Landlock here, or no numbers for this architecture.
    """
    known = _prepared.pop(confinement, None)
    if known is None or known.plan.is_stale():
        if known is not None:
            _discard(known)
        known = _make(confinement)
    _prepared[confinement] = known  # the newest last
    if len(_prepared) > _MOST_PREPARED:
        _discard(_prepared.pop(next(iter(_prepared))))
    return known


def forget(confinement: Confinement) -> None:
    """Free what was prepared for `confinement`, which will not come again."""
    known = _prepared.pop(confinement, None)
    if known is not None:
        _discard(known)


def _make(confinement: Confinement) -> Prepared:
    plan = landlock.plan_rules(confinement)
    program = seccomp.build_filter(
        tier=confinement.tier, network=confinement.network, abi=landlock_abi()
    )
    # Also in tier 2, if only to learn here and not in the command that there is no Landlock.
    ruleset = landlock.build_ruleset(plan) if confinement.tier < 2 else None
    return Prepared(confinement, plan, program, ruleset)


def _discard(prepared: Prepared) -> None:
    if prepared.ruleset is not None:
        os.close(prepared.ruleset)


def enter(prepared: Prepared, request: SpawnRequest, cwd_fd: int) -> int | None:
    """Confine this process for good; to be called between fork and exec.

    In tier 2 it returns in another process: a grandchild of the caller's process, inside the
    namespaces. The caller's process stays behind, ignores signals, and ends as the command does.
    The group and the session are the caller's.

    Args:
        prepared: what `prepare` gave.
        request: what will be run; `cwd` is how tier 2 names the folder.
        cwd_fd: the folder; it becomes the current one.

    Returns:
        The descriptor for a `Notary` in the supervisor.

    Raises:
        OSError: it could not be confined: nothing may be run.
    """
    # The supervisor, whose fork this is, may not be looked into; the command must be, by it.
    prctl(PR_SET_DUMPABLE, 1)
    if prepared.confinement.tier == 2:
        namespaces.enter(prepared.confinement, request.cwd, cwd_fd)
    else:
        os.fchdir(cwd_fd)
    ruleset = prepared.ruleset
    if ruleset is None or request.tty:
        ruleset = landlock.build_ruleset(prepared.plan, terminal=0 if request.tty else None)
    give_up_privileges()
    landlock.restrict_self(ruleset)
    os.close(ruleset)
    return seccomp.install(prepared.program)


# How the listener comes to the supervisor. Where the network is allowed, sendmsg is a question, and
# nobody is there yet to answer it: then the supervisor is told the number and takes it.
_NUMBER = struct.Struct("=4si")
_NUMBER_MARK = b"\0fd="
_TAKEN, _NOT_TAKEN = b"+", b"-"


def give_listener(channel: socket.socket, word: bytes, listener: int, network: bool) -> None:
    """Send `word` and the listener to the supervisor; in the confined process.

    Args:
        channel: to the supervisor.
        word: what it is to read.
        listener: what `enter` returned.
        network: of the confinement.

    Raises:
        OSError: the supervisor could not take it (EPERM: Yama forbids it to trace its children).
    """
    if not network:
        socket.send_fds(channel, [word], [listener])
        return
    channel.sendall(_NUMBER.pack(_NUMBER_MARK, listener))
    if channel.recv(1) != _TAKEN:
        raise PermissionError(errno.EPERM, "network needs the right to trace one's own children")
    channel.sendall(word)


def take_listener(
    channel: socket.socket, data: bytes, fds: Sequence[int], tree: Callable[[], Sequence[int]]
) -> tuple[int | None, bytes]:
    """Find the listener in what came from a confined process; in the supervisor.

    Args:
        channel: to the confined process.
        data: what came.
        fds: the descriptors that came with it.
        tree: returns the process ids of the command's tree, parents before children.

    Returns:
        The listener, None if it was not in it, and the rest of `data`.
    """
    if fds or not data.startswith(_NUMBER_MARK):
        return (fds[0] if fds else None), data
    number = _NUMBER.unpack_from(data)[1]
    try:
        listener = take_descriptor(tree()[-1], number)
    except OSError:
        channel.sendall(_NOT_TAKEN)
        return None, data[_NUMBER.size :]
    channel.sendall(_TAKEN)
    return listener, data[_NUMBER.size :]
