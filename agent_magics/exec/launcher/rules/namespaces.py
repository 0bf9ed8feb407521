"""Tier 2: adds namespaces to the other rules, where this machine lets a user create them.

The command gets its own processes, System V objects and, without network, an empty network. In its
mount namespace all is read-only except `writable`; `protected` is read-only, `hidden` is covered;
/dev/shm, /dev/pts and /proc are new. Protected paths that do not exist cannot be mounted over (that
would take a file in the person's folder): the tripwire of the kernel process watches them. Folders
between a writable root and a protected path are mount points, so that they cannot be renamed and
replaced; renaming across them fails with EXDEV, and mv copies.

Mounts are made on descriptors of paths without symlinks, so that no folder can be exchanged (man 7
user_namespaces, mount_namespaces, pid_namespaces).
"""

import errno
import os
import resource
import select
import signal
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from agent_magics.exec.launcher import linux
from agent_magics.exec.launcher.descriptors import open_plain
from agent_magics.exec.launcher.linux import die_with_parent, prctl, syscall
from agent_magics.exec.launcher.rules.landlock import SHARED_MEMORY, TERMINALS, is_below
from agent_magics.exec.launcher.rules.privileges import give_up_privileges
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement

# <linux/sched.h>
_NEWNS, _NEWIPC, _NEWUSER = 0x00020000, 0x08000000, 0x10000000
_NEWPID, _NEWNET = 0x20000000, 0x40000000
# <linux/mount.h>
_NOSUID, _NODEV, _NOEXEC, _RDONLY = 1 << 1, 1 << 2, 1 << 3, 1 << 0
_REC, _PRIVATE = 1 << 14, 1 << 18
_OPEN_TREE_CLONE = 1
_MOVE_FROM_EMPTY, _MOVE_TO_EMPTY = 0x04, 0x40
_ATTR_RDONLY = 1
# <linux/fcntl.h>
_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_ATTRIBUTES = struct.Struct("=QQQQ")  # struct mount_attr: set, clear, propagation, user namespace

_TINY = "mode=000,size=4k"  # not listable: an error is clearer than an empty folder


@contextmanager
def _step(name: str) -> Iterator[None]:
    """Add the name of a failed step to its OSError."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{name}: {os.strerror(error.errno or 0)}") from error


def enter(confinement: Confinement, folder: str, folder_fd: int) -> None:
    """Move into new namespaces; returns in a grandchild of this process.

    Args:
        confinement: of tier 2.
        folder: the future current folder, entered again through the new mounts.
        folder_fd: the same folder, for comparison.

    Raises:
        OSError: a step failed, which is named; or the folder is another one, or a hidden path was
            moved (ESTALE).
    """
    parent = os.getppid()
    wanted = os.fstat(folder_fd)
    _leave_namespaces(confinement.network)
    die_with_parent(parent, signal.SIGKILL)  # reset by the new credentials
    _arrange_mounts(confinement)
    _start_command(folder, wanted)


def _leave_namespaces(network: bool) -> None:
    user, group = os.geteuid(), os.getegid()
    with _step("unshare"):
        flags = _NEWUSER | _NEWNS | _NEWIPC | _NEWPID | (0 if network else _NEWNET)
        syscall(number_of("unshare"), flags)
    prctl(linux.PR_SET_DUMPABLE, 1)  # reset by the new credentials
    with _step("the map of users"):
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


# Mounts


def _arrange_mounts(confinement: Confinement) -> None:
    with _step("private mounts"):
        _mount(None, "/", None, _REC | _PRIVATE)
    roots = _outermost(confinement.writable)
    with _step("read-only mounts"):
        # Copied while still writable; mounted again after all else is read-only.
        copies = [(root, _copy_tree(root)) for root in roots]
        _set_read_only(_AT_FDCWD, b"/")
        for root, copy in copies:
            if copy is not None:
                _put(copy, root)
    with _step("protected paths"):
        _protect(confinement, roots)
    with _step("own /dev/shm and /dev/pts"):
        shared = os.path.realpath(SHARED_MEMORY)
        _mount("tmpfs", shared, "tmpfs", _NOSUID | _NODEV, "mode=1777")
        terminals = "newinstance,ptmxmode=0666,mode=620"
        _mount("devpts", TERMINALS, "devpts", _NOSUID | _NOEXEC, terminals)
    with _step("hidden paths"):
        _hide(confinement.hidden, roots, shared)


def _outermost(paths: tuple[str, ...]) -> list[str]:
    """Return `paths` without those below others of them."""
    return [p for p in set(paths) if not is_below(p, tuple(o for o in set(paths) if o != p))]


def _copy_tree(path: str) -> int | None:
    """Return a copy of the mounts at `path` and below, as a descriptor; None if it does not
    exist.
    """
    try:
        fd = open_plain(path)
    except OSError:
        return None
    try:
        flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | _AT_RECURSIVE | os.O_CLOEXEC
        return syscall(number_of("open_tree"), fd, b"", flags)
    finally:
        os.close(fd)


def _put(tree: int, path: str) -> None:
    """Mount `tree` at `path`, and close it."""
    try:
        target = open_plain(path)
        try:
            _attach(tree, target)
        finally:
            os.close(target)
    finally:
        os.close(tree)


def _attach(tree: int, target: int) -> None:
    flags = _MOVE_FROM_EMPTY | _MOVE_TO_EMPTY
    syscall(number_of("move_mount"), tree, b"", target, b"", flags)


def _set_read_only(folder: int, path: bytes) -> None:
    """Make a mount and all below it read-only."""
    attributes = _ATTRIBUTES.pack(_ATTR_RDONLY, 0, 0, 0)
    flags = _AT_RECURSIVE | (0 if path else _AT_EMPTY_PATH)
    number = number_of("mount_setattr")
    syscall(number, folder, path, flags, attributes, len(attributes))


def _protect(confinement: Confinement, roots: list[str]) -> None:
    pinned: set[str] = set()
    for path in sorted(confinement.protected):
        if not is_below(path, tuple(roots)) or not os.path.lexists(path):
            continue
        for folder in _between(path, roots):
            if folder not in pinned:
                _mount_on_itself(folder, read_only=False)
                pinned.add(folder)
        _mount_on_itself(path, read_only=True)


def _between(path: str, roots: list[str]) -> list[str]:
    """Return the folders between the writable root of `path` and `path`, the outermost first."""
    folders: list[str] = []
    while path not in roots:
        path = os.path.dirname(path)
        folders.insert(0, path)
    return folders[1:]


def _mount_on_itself(path: str, *, read_only: bool) -> None:
    tree = _copy_tree(path)
    if tree is not None:
        if read_only:
            _set_read_only(tree, b"")
        _put(tree, path)


def _hide(paths: tuple[str, ...], roots: list[str], scratch: str) -> None:
    """Cover folders with an empty one, and files with an empty file that is made in `scratch`.

    Raises:
        OSError: one below a writable root is not there any more: moved, it could be read (ESTALE).
    """
    empty = os.path.join(scratch, "empty")
    os.close(os.open(empty, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
    try:
        for path in sorted(paths):
            try:
                target = _opened(path)
            except OSError as error:
                is_covered = is_below(path, tuple(other for other in paths if other != path))
                if is_below(path, tuple(roots)) and not is_covered:
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE)) from error
                continue  # missing, or below a covered folder
            try:
                _cover(target, empty)
            finally:
                os.close(target)
    finally:
        os.unlink(empty)


def _opened(path: str) -> int:
    """Open a path that is to be covered, or the nearest folder above it that can be opened.

    A folder that the person has closed is covered whole, since the command could open it again.
    """
    try:
        return open_plain(path)
    except PermissionError:
        return _opened(os.path.dirname(path))


def _cover(target: int, empty: str) -> None:
    if stat.S_ISDIR(os.fstat(target).st_mode):
        flags = _RDONLY | _NOSUID | _NODEV | _NOEXEC
        _mount("tmpfs", f"/proc/self/fd/{target}", "tmpfs", flags, _TINY)
        return
    tree = _copy_tree(empty)
    assert tree is not None  # created by the caller
    try:
        _set_read_only(tree, b"")
        _attach(tree, target)
    finally:
        os.close(tree)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode("ascii")
    syscall(number_of("mount"), *texts, flags, data)


# Processes

_OUTCOME = struct.Struct("=i?")  # the command's wait status; whether no other process is left


def _start_command(folder: str, wanted: os.stat_result) -> None:
    """Fork the first process of the new pid namespace, and from it the one that returns.

    A namespace's first process ignores signals without a handler, Ctrl-C too, so it is not the
    command.
    """
    reader, writer = os.pipe()
    # Signals to the group are meant for the command.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    with _step("a new process"):
        first = os.fork()
    if first:
        os.close(writer)
        _relay(first, reader)
    os.close(reader)
    prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    _check_reader(writer)
    with _step("a new /proc"):
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _enter_folder(folder, wanted)
    command = os.fork()
    if command:
        _tend(command, writer)
    os.close(writer)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _check_reader(writer: int) -> None:
    """End if nobody reads: the parent ended before the death signal was set."""
    poll = select.poll()
    poll.register(writer, 0)
    if poll.poll(0):
        os._exit(1)


def _enter_folder(folder: str, wanted: os.stat_result) -> None:
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino):
            raise OSError(errno.ESTALE, f"{folder} is not the folder that was meant")
        os.fchdir(fd)
    finally:
        os.close(fd)


def _tend(command: int, writer: int) -> NoReturn:
    """Run as the namespace's first process: reap orphans, report how the command ended, end."""
    _close_all_but(writer)
    linux.forbid_inspection()
    give_up_privileges()
    pid, status = os.wait()
    while pid != command:
        pid, status = os.wait()
    alone = not _anybody_left()
    if not alone:
        # The supervisor has to find and count them; ending now would kill them unnoticed.
        prctl(linux.PR_SET_PDEATHSIG, 0)
    os.write(writer, _OUTCOME.pack(status, alone))
    os.close(writer)
    while not alone:
        alone = not _anybody_left(wait=True)
    os._exit(0)


def _anybody_left(*, wait: bool = False) -> bool:
    """Reap ended children; return whether any is left."""
    try:
        while os.waitpid(-1, 0 if wait else os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _relay(first: int, reader: int) -> NoReturn:
    """Wait until the command has ended, and end in the same way."""
    _close_all_but(reader)
    data = os.read(reader, _OUTCOME.size)
    if len(data) == _OUTCOME.size:
        status, alone = _OUTCOME.unpack(data)
        if alone:  # else the first process would be counted as left over
            os.waitpid(first, 0)
    else:  # it was killed
        status = signal.SIGKILL
    if os.WIFEXITED(status):
        os._exit(os.WEXITSTATUS(status))
    _end_by(os.WTERMSIG(status))


def _end_by(number: int) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _close_all_but(kept: int) -> None:
    """Close the command's streams in this process, so that its output ends with it."""
    os.closerange(0, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
