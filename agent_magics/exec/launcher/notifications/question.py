"""Represents a system call that waits for the supervisor's answer.

Memory of the calling process is read once, into copies: later changes to it have no effect.
"""

import errno
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from agent_magics.exec.launcher.descriptors import open_in_root, take_descriptor

AT_FDCWD = -100  # <linux/fcntl.h>
_PAGE = 4096
_PATH_MAX = 4096  # <linux/limits.h>
_INT = struct.Struct("=i")

# These links refer to the calling process; resolved by the supervisor they would refer to itself.
_OWN_DESCRIPTOR = re.compile(
    rb"/(?:proc/(?:self|thread-self)|dev)/fd/([0-9]{1,9})(/.*)?", re.DOTALL
)


class Refused(PermissionError):
    """The policy refuses the call.

    Attributes:
        what: description for people, such as "connect 127.0.0.1:22"; "" is not reported.
    """

    def __init__(self, what: str):
        super().__init__(errno.EPERM, "refused by the sandbox")
        self.what = what


@dataclass(frozen=True, slots=True)
class Deferred:
    """The result of a call that is still in progress.

    Attributes:
        again: returns the value, or raises OSError; BlockingIOError means "not yet".
        descriptor: becomes writable when a retry is worthwhile; None means periodically.
        close: frees its resources.
    """

    again: Callable[[], int]
    descriptor: int | None
    close: Callable[[], None]


class SystemCall:
    """One notification of the kernel (struct seccomp_notif of <linux/seccomp.h>).

    Attributes:
        id: the kernel's identifier of the notification.
        thread: the id of the calling thread.
        number: the system call.
        arguments: its six arguments, unsigned.
    """

    def __init__(self, data: bytes, confirm: Callable[["SystemCall"], None]):
        self.id, self.thread, _, self.number, _, _, *self.arguments = NOTIFICATION.unpack(data)
        self._confirm = confirm

    def confirm(self) -> None:
        """Check that the call is still pending, so that all data read so far came from its caller.

        Without this check the data might come from a new process with the same id.

        Raises:
            OSError: it is not pending any more (ENOENT).
        """
        self._confirm(self)

    def integer(self, index: int) -> int:
        """Return an argument as C's int."""
        value: int = _INT.unpack_from(struct.pack("=Q", self.arguments[index]))[0]
        return value

    def read(self, address: int, size: int) -> bytes:
        """Read `size` bytes of the calling process's memory.

        Raises:
            OSError: EFAULT when not all are mapped; EPERM where it may not be traced.
        """
        data = self._read_some(address, size)
        if len(data) < size:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return data

    def read_path(self, address: int) -> bytes:
        """Read the NUL-terminated path at `address`.

        Raises:
            OSError: EFAULT, ENAMETOOLONG, or EPERM where it may not be traced.
        """
        data = b""
        while len(data) < _PATH_MAX:
            place = address + len(data)
            # Not past the page: the next one may not exist.
            piece = self._read_some(place, _PAGE - place % _PAGE)
            text, end, _ = piece.partition(b"\0")
            data += text
            if end:
                return data
            if not piece:
                raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    def _read_some(self, address: int, size: int) -> bytes:
        try:
            memory = os.open(f"/proc/{self.thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM)) from error
        try:
            return os.pread(memory, size, address)
        except (OSError, OverflowError) as error:  # EIO: nothing is mapped there
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT)) from error
        finally:
            os.close(memory)

    def write(self, address: int, data: bytes) -> None:
        """Write into the calling process's memory.

        Raises:
            OSError: EFAULT.
        """
        memory = os.open(f"/proc/{self.thread}/mem", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(memory, data, address)
        except (OSError, OverflowError) as error:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT)) from error
        finally:
            os.close(memory)

    def take(self, number: int) -> int:
        """Copy the calling process's descriptor `number`.

        Raises:
            OSError: EBADF; EPERM where it may not be traced.
        """
        return take_descriptor(self.thread, number)

    def open_descriptor(self, number: int) -> int:
        """Return an O_PATH descriptor of the file behind the caller's descriptor `number` (or
        AT_FDCWD).

        Raises:
            OSError: EBADF.
        """
        try:
            return os.open(self._link(number), os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def open_path(self, base: int, path: bytes, *, follow: bool) -> int:
        """Return an O_PATH descriptor of `path` as the calling process would resolve it.

        Args:
            base: descriptor of the folder that it is relative to, or AT_FDCWD.
            path: not empty.
            follow: whether a symlink at its end is followed.

        Raises:
            OSError: it cannot be resolved; ELOOP for links of /proc other than its own descriptors.
        """
        own = _OWN_DESCRIPTOR.fullmatch(path)
        if own and not own[2] and follow:
            return self.open_descriptor(int(own[1]))
        if own and own[2]:
            base, path = int(own[1]), own[2].lstrip(b"/") or b"."
        if not path.startswith(b"/"):
            path = self._folder(base) + b"/" + path
        root = os.open(f"/proc/{self.thread}/root", os.O_PATH | os.O_CLOEXEC)
        try:
            return open_in_root(root, path, follow=follow)
        finally:
            os.close(root)

    def _folder(self, base: int) -> bytes:
        try:
            return os.readlink(os.fsencode(self._link(base)))
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _link(self, base: int) -> str:
        return f"/proc/{self.thread}/" + ("cwd" if base == AT_FDCWD else f"fd/{base}")


NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # id, pid, flags; struct seccomp_data
