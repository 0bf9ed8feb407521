"""The entry point of confinement: prepared once in the launcher, entered between fork and exec.

Three layers: Landlock (files), seccomp (system calls), and the supervisor's decisions on calls that
neither can judge (`SeccompNotifier`). Tier 2 adds namespaces.
"""

import errno
import os
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_magics.exec.launcher.descriptors import take_descriptor
from agent_magics.exec.launcher.linux import PR_SET_DUMPABLE, landlock_abi, prctl
from agent_magics.exec.launcher.rules import landlock, namespaces, seccomp
from agent_magics.exec.launcher.rules.privileges import give_up_privileges
from agent_magics.exec.launcher.wire import Confinement, SpawnRequest

_MOST_PREPARED = 16
_prepared: dict[Confinement, "Prepared"] = {}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A confinement, ready to be entered any number of times.

    Attributes:
        confinement: the confinement it was made for.
        plan: the paths and ports that Landlock grants.
        program: the seccomp filter.
        ruleset: Landlock's ruleset, as a descriptor; None in tier 2, where each command has its own
            mounts, which the rules must name.
    """

    confinement: Confinement
    plan: landlock.RulesetPlan
    program: bytes
    ruleset: int | None


def prepare(confinement: Confinement) -> Prepared:
    """Prepare `confinement`, in the launcher; cached until a relevant folder changes.

    Raises:
        OSError: there is no Landlock here, or the architecture is not supported.
    """
    known = _prepared.pop(confinement, None)
    if known is None or known.plan.is_stale():
        if known is not None:
            _discard(known)
        known = _make(confinement)
    _prepared[confinement] = known  # most recently used last
    if len(_prepared) > _MOST_PREPARED:
        _discard(_prepared.pop(next(iter(_prepared))))
    return known


def forget(confinement: Confinement) -> None:
    """Free what was prepared for `confinement`, which will not be used again."""
    known = _prepared.pop(confinement, None)
    if known is not None:
        _discard(known)


def _make(confinement: Confinement) -> Prepared:
    plan = landlock.plan_rules(confinement)
    program = seccomp.build_filter(
        tier=confinement.tier, network=confinement.network, abi=landlock_abi()
    )
    # (Tier 2 builds its ruleset in the command, after its mounts.)
    ruleset = landlock.build_ruleset(plan) if confinement.tier < 2 else None
    return Prepared(confinement, plan, program, ruleset)


def _discard(prepared: Prepared) -> None:
    if prepared.ruleset is not None:
        os.close(prepared.ruleset)


def enter(prepared: Prepared, request: SpawnRequest, cwd_fd: int) -> int:
    """Confine this process irrevocably; to be called between fork and exec.

    In tier 2 it returns in another process: a grandchild of the calling process, inside the
    namespaces. The calling process stays behind, ignores signals, and ends as the command does.
    Process group and session are the caller's.

    Args:
        prepared: from `prepare`.
        request: what will be run; `cwd` is how tier 2 names the folder.
        cwd_fd: the folder; it becomes the current one.

    Returns:
        The descriptor for a `SeccompNotifier` in the supervisor.

    Raises:
        OSError: it could not be confined: nothing may be run.
    """
    # The supervisor, of which this is a fork, is not traceable; the command must be, by the
    # supervisor.
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


# How the listener reaches the supervisor: by sendmsg. Where the network is allowed, sendmsg itself
# needs the listener's answer; then only the number is sent, and the supervisor copies the
# descriptor.
_NUMBER = struct.Struct("=4si")
_NUMBER_MARK = b"\0fd="
_TAKEN, _NOT_TAKEN = b"+", b"-"


def give_listener(channel: socket.socket, message: bytes, listener: int, network: bool) -> None:
    """Send `message` and the listener to the supervisor; called in the confined process.

    Args:
        channel: socket to the supervisor.
        message: bytes for the supervisor.
        listener: from `enter`.
        network: as in the confinement.

    Raises:
        OSError: the supervisor could not copy it (EPERM: Yama forbids it to trace its children).
    """
    if not network:
        socket.send_fds(channel, [message], [listener])
        return
    channel.sendall(_NUMBER.pack(_NUMBER_MARK, listener))
    if channel.recv(1) != _TAKEN:
        raise PermissionError(errno.EPERM, "network needs the right to trace one's own children")
    channel.sendall(message)


def take_listener(
    channel: socket.socket, data: bytes, fds: Sequence[int], tree: Callable[[], Sequence[int]]
) -> tuple[int | None, bytes]:
    """Extract the listener from data of a confined process; called in the supervisor.

    Args:
        channel: socket to the confined process.
        data: the received bytes.
        fds: the received descriptors.
        tree: returns the process ids of the command's tree, parents before children.

    Returns:
        The listener, None if it was not included, and the rest of `data`.
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
