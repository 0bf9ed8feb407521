"""Restricts this process as a container without user namespaces does (Docker, Binder)."""

import ctypes
import os
import platform
import struct

# <linux/filter.h>: a load of a word, two jumps, the end.
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000  # <linux/seccomp.h>
_EPERM, _ENOSYS = 1, 38
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in struct seccomp_data
_NAMESPACES = 0x7E020080  # CLONE_NEW* of <linux/sched.h>

_CLONE3 = 435
# clone, and: unshare, setns, mount, umount2, pivot_root; the rest have one number everywhere:
# open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr.
_CLONE, *_OLD = {
    "x86_64": (56, 272, 308, 165, 166, 155),
    "aarch64": (220, 97, 268, 40, 39, 41),
}[platform.machine()]
_DENIED = (*_OLD, 428, 429, 430, 431, 432, 433, 442)


def deny_namespaces() -> None:
    """Install the filter; every child inherits it.

    Raises:
        OSError: the kernel refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2  # <linux/prctl.h>
    program = _program()
    header = struct.pack("HxxxxxxQ", len(program) // 8, _address(program))
    if os.geteuid() != 0:
        libc.prctl(no_new_privileges, 1, 0, 0, 0)
    if libc.prctl(set_seccomp, filter_mode, ctypes.c_ulong(_address(header)), 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


_kept: list[object] = []


def _address(data: bytes) -> int:
    buffer = ctypes.create_string_buffer(data, len(data))
    _kept.append(buffer)
    return ctypes.addressof(buffer)


def _program() -> bytes:
    steps = [(_LOAD, 0, 0, _NUMBER)]
    steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    for number in _DENIED:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    steps += [(_EQUAL, 0, 3, _CLONE), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    steps += [(_ANY_BIT, 0, 1, _NAMESPACES), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in steps)
