"""Changes modes, owners and sizes of files on behalf of a command, which Landlock does not control.

The file is opened once; its descriptor is judged, and the change is made through the descriptor.
There is no second path look-up, so the file cannot be exchanged in between.
"""

import errno
import os
import stat
import struct
from dataclasses import dataclass

from agent_magics.exec.launcher.descriptors import path_of
from agent_magics.exec.launcher.linux import syscall
from agent_magics.exec.launcher.notifications.question import AT_FDCWD, Refused, SystemCall
from agent_magics.exec.launcher.rules.landlock import SHARED_MEMORY, is_below
from agent_magics.exec.launcher.syscalls import number_of
from agent_magics.exec.launcher.wire import Confinement

# <linux/fcntl.h>
_AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = 0x100, 0x1000
_LONG = struct.Struct("=q")


@dataclass(frozen=True, slots=True)
class _Form:
    """Positions of a call's arguments: descriptor of folder or file, path, further ones, flags."""

    base: int | None
    path: int | None
    rest: int
    flags: int | None = None
    follow: bool = True


_FORMS = {
    "chmod": _Form(None, 0, 1),
    "fchmod": _Form(0, None, 1),
    "fchmodat": _Form(0, 1, 2),
    "fchmodat2": _Form(0, 1, 2, 3),
    "chown": _Form(None, 0, 1),
    "fchown": _Form(0, None, 1),
    "lchown": _Form(None, 0, 1, follow=False),
    "fchownat": _Form(0, 1, 2, 4),
    "truncate": _Form(None, 0, 1),
}


def change_file(question: SystemCall, name: str, confinement: Confinement) -> int:
    """Perform the call `name`; return 0.

    Raises:
        Refused: the file is not below a writable folder, or the mode has a setuid bit.
        OSError: as the call itself.
    """
    form = _FORMS[name]
    fd = _open_target(question, form)
    try:
        question.confirm()
        where = path_of(fd)
        if not is_below(where, (*confinement.writable, SHARED_MEMORY)):
            raise Refused(f"{name} {where}")
        if name == "truncate":
            size = _LONG.unpack(struct.pack("=Q", question.arguments[form.rest]))[0]
            os.truncate(f"/proc/self/fd/{fd}", size)
        elif "chmod" in name:
            _change_mode(fd, question.arguments[form.rest] & 0o7777, where)
        else:
            user, group = question.integer(form.rest), question.integer(form.rest + 1)
            number = number_of("fchownat")
            syscall(number, fd, b"", user, group, _AT_EMPTY_PATH)
    finally:
        os.close(fd)
    return 0


def _open_target(question: SystemCall, form: _Form) -> int:
    flags = 0 if form.flags is None else question.integer(form.flags)
    if flags & ~(_AT_SYMLINK_NOFOLLOW | _AT_EMPTY_PATH):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    base = AT_FDCWD if form.base is None else question.integer(form.base)
    if form.path is None:
        return question.open_descriptor(base)
    path = question.read_path(question.arguments[form.path])
    if path:
        follow = form.follow and not flags & _AT_SYMLINK_NOFOLLOW
        return question.open_path(base, path, follow=follow)
    if not flags & _AT_EMPTY_PATH:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return question.open_descriptor(base)


def _change_mode(fd: int, mode: int, where: str) -> None:
    status = os.fstat(fd)
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    setid = mode & (stat.S_ISUID | stat.S_ISGID)
    # On a folder the setgid bit is no privilege: it determines the group of new files.
    if setid and not (stat.S_ISDIR(status.st_mode) and setid == stat.S_ISGID):
        raise Refused(f"chmod {mode:o} {where}")
    os.chmod(f"/proc/self/fd/{fd}", mode)
