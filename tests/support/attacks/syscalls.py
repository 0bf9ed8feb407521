"""Makes raw system calls, for attacks without a function in Python."""

import ctypes
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
LIBC.shmat.restype = ctypes.c_void_p

# <asm/unistd_64.h> and <asm-generic/unistd.h>: x86_64, aarch64.
_NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "fchmodat": (268, 53),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "keyctl": (250, 219),
    "linkat": (265, 37),
    "mount": (165, 40),
    "mq_open": (240, 180),
    "mq_receive": (243, 183),
    "mq_send": (242, 182),
    "mq_unlink": (241, 181),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "renameat2": (316, 276),
    "sendmmsg": (307, 269),
    "shmat": (30, 196),
    "shmget": (29, 194),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
_COLUMN = ("x86_64", "aarch64").index(platform.machine())


def syscall(name: str, *arguments: object) -> int:
    """Call the kernel; integers are passed as C longs.

    Raises:
        OSError: it refused.
    """
    return raw_syscall(_NUMBERS[name][_COLUMN], *arguments)


def raw_syscall(number: int, *arguments: object) -> int:
    """Call the kernel by number.

    Raises:
        OSError: it refused.
    """
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *values)
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(number))
    return result
