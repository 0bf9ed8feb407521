"""Builds the Landlock ruleset: which files a confined command may read, run and write.

Landlock can only grant access; an exception below a granted folder is impossible. So everything
except `hidden` and /dev is granted by granting their siblings, in each folder on the path to them.
Siblings that are created later are not granted, hence `Plan.is_stale`
(Documentation/userspace-api/landlock.rst, <linux/landlock.h>).
"""

import errno
import os
import stat
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from agent_magics.exec.launcher.descriptors import open_plain
from agent_magics.exec.launcher.linux import landlock_abi, syscall
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement

# LANDLOCK_ACCESS_FS_*, bit by bit
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
# Rights that apply to anything but a folder.
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# Number of these bits per ABI version: REFER came with 2, TRUNCATE with 3, IOCTL_DEV with 5.
_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
_ALL_BITS = 16

# LANDLOCK_ACCESS_NET_*, LANDLOCK_SCOPE_*, LANDLOCK_RULE_*
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_PATH_BENEATH, _NET_PORT = 1, 2
_FIRST_WITH_NETWORK, _FIRST_WITH_SCOPES = 4, 6

READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = ((1 << _ALL_BITS) - 1) & ~(_MAKE_CHAR | _MAKE_BLOCK)
_DEVICE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV

# Entries of a folder beside what tier 2 hides; in larger ones the mounts alone have to do.
_MOST_BESIDE = 300
SHARED_MEMORY = "/dev/shm"  # used by multiprocessing's locks
TERMINALS = "/dev/pts"
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx")
_SOURCES = ("/dev/random", "/dev/urandom")
PORTS = (443, 80)

# A change within the same tick of the kernel's clock as the listing may not alter the time stamp.
_TICK = 0.05  # seconds

Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class RulesetPlan:
    """The access to grant, in terms of paths.

    Attributes:
        grants: path and rights.
        ports: TCP ports that may be connected to.
        stamps: listed folder -> its stamp; None when that is unreliable.
        roots: writable path -> its device and inode.
    """

    grants: tuple[tuple[str, int], ...]
    ports: tuple[int, ...]
    stamps: dict[str, Stamp]
    roots: dict[str, tuple[int, int] | None]

    def is_stale(self) -> bool:
        """Tell whether a listed folder, or a writable root, has changed since."""
        changed = any(stamp is None or _stamp(f) != stamp for f, stamp in self.stamps.items())
        return changed or any(_identity(path) != was for path, was in self.roots.items())


def plan_rules(confinement: Confinement) -> RulesetPlan:
    """Compute the access to grant for `confinement`."""
    stamps: dict[str, Stamp] = {}
    grants = [("/", _READ_DIR)]
    grants += ((path, READ) for path in _beside_hidden(confinement, stamps))
    # In containers /dev/ptmx is a symlink.
    grants += ((os.path.realpath(path), _DEVICE) for path in _DEVICES)
    grants += ((path, _READ_FILE | _IOCTL_DEV) for path in _SOURCES)
    grants.append((os.path.realpath(SHARED_MEMORY), READ | WRITE))
    if confinement.tier == 2:  # its own terminals
        grants.append((TERMINALS, READ | WRITE))
    grants += ((path, READ | WRITE) for path in confinement.writable)
    roots = {path: _identity(path) for path in confinement.writable}
    return RulesetPlan(tuple(grants), PORTS if confinement.network else (), stamps, roots)


def _beside_hidden(confinement: Confinement, stamps: dict[str, Stamp]) -> Iterator[str]:
    """Yield the siblings of hidden paths and of the folders above them."""
    # In tier 2 too: a mount that covers a file is gone once somebody replaces the file.
    holes = {"/dev", *map(os.path.realpath, confinement.hidden)}
    # Exceptions below a writable folder are impossible, and what comes later beside one cannot be
    # read: in the workspace of tier 2 the mounts have to do. Nested ones are redundant.
    workspace = confinement.workspace if confinement.tier == 2 else ()
    holes = {path for path in holes if not is_below(path, (*confinement.writable, *workspace))}
    if confinement.tier == 2:  # each entry costs a rule with each command
        above = {folder for hole in holes for folder in _folders_above(hole)}
        crowded = {folder for folder in above if len(_names(folder)) > _MOST_BESIDE}
        holes = {path for path in holes if crowded.isdisjoint(_folders_above(path))}
    holes -= {path for path in holes if holes & set(_folders_above(path))}
    on_the_way = {folder for hole in holes for folder in _folders_above(hole)}
    for folder in sorted(on_the_way - holes):
        now = time.time()
        stamp = _stamp(folder)
        settled = stamp is None or not -_TICK < now - stamp[2] / 1e9 < _TICK
        stamps[folder] = stamp if settled else None
        paths = (os.path.join(folder, name) for name in _names(folder))
        yield from (path for path in paths if path not in holes and path not in on_the_way)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # missing or unreadable: nothing in it is granted
        return []


def _folders_above(path: str) -> Iterator[str]:
    while path != "/":
        path = os.path.dirname(path)
        yield path


def is_below(path: str, roots: tuple[str, ...]) -> bool:
    """Tell whether absolute `path` is one of `roots` or below one."""
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)


def _stamp(folder: str) -> Stamp:
    """Return what changes with the names in `folder`; (-1, …) for a missing folder."""
    try:
        status = os.stat(folder)
    except OSError:
        return (-1, 0, 0)
    # Not the modification time, which anyone who may write there can reset.
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def build_ruleset(plan: RulesetPlan, terminal: int | None = None) -> int:
    """Return the descriptor of a ruleset that grants `plan` and denies everything else it can.

    Paths that do not exist, or are symlinks, are skipped and so not granted.

    Args:
        plan: what to grant.
        terminal: descriptor of the command's own terminal, granted too: opening /dev/stderr
            reopens it.

    Raises:
        OSError: there is no Landlock (ENOSYS, EOPNOTSUPP).
    """
    abi = landlock_abi()
    if not abi:
        raise OSError(errno.EOPNOTSUPP, "there is no Landlock")
    handled = (1 << _BITS.get(abi, _ALL_BITS)) - 1
    network = _BIND_TCP | _CONNECT_TCP
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS
    attributes = struct.pack("=Q", handled)
    if abi >= _FIRST_WITH_NETWORK:
        attributes += struct.pack("=Q", network)
    if abi >= _FIRST_WITH_SCOPES:
        attributes += struct.pack("=Q", scopes)
    create = number_of("landlock_create_ruleset")
    ruleset = syscall(create, attributes, len(attributes), 0)
    try:
        for path, rights in plan.grants:
            _grant_path(ruleset, path, rights & handled)
        if terminal is not None:
            _grant(ruleset, terminal, _DEVICE & handled)
        if abi >= _FIRST_WITH_NETWORK:
            for port in plan.ports:
                _add_rule(ruleset, _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port))
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset


def _grant_path(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = open_plain(path)
    except OSError:  # vanished, a symlink, or in a folder that may not be entered
        return
    try:
        _grant(ruleset, fd, rights)
    finally:
        os.close(fd)


def _grant(ruleset: int, fd: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        rights &= _FILE_RIGHTS
    if not rights:
        return
    try:
        _add_rule(ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd))
    except OSError as error:
        # EBADFD: internal file systems of the kernel, which Landlock does not control.
        if error.errno != errno.EBADFD:
            raise


def _add_rule(ruleset: int, kind: int, attributes: bytes) -> None:
    syscall(number_of("landlock_add_rule"), ruleset, kind, attributes, 0)


def restrict_self(ruleset: int) -> None:
    """Apply `ruleset` to this process irrevocably; requires no_new_privs.

    Raises:
        OSError: the kernel refuses.
    """
    syscall(number_of("landlock_restrict_self"), ruleset, 0)
