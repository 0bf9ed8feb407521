"""A system call that waits for the supervisor's answer, and what can be learned about it.

Memory of the asking process is read once, into copies: what it changes afterwards changes nothing.
"""

import errno
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

from agent_magics.backends.launcher.descriptors import open_in_root, take_descriptor

AT_FDCWD = -100  # <linux/fcntl.h>
_PAGE = 4096
_PATH_MAX = 4096  # <linux/limits.h>
_INT = struct.Struct("=i")

# These links of /proc mean the asking process; resolved by us they would mean us.
_OWN_DESCRIPTOR = re.compile(
    rb"/(?:proc/(?:self|thread-self)|dev)/fd/([0-9]{1,9})(/.*)?", re.DOTALL
)


class Refused(PermissionError):
    """The policy refuses the call.

    Attributes:
        what: for people, such as "connect 127.0.0.1:22"; empty when nobody need hear of it.
    """

    def __init__(self, what: str):
        super().__init__(errno.EPERM, "refused by the sandbox")
        self.what = what


@dataclass(frozen=True, slots=True)
class Later:
    """The answer is not known yet.

    Attributes:
        again: returns the value, or raises OSError; BlockingIOError means "not yet".
        descriptor: becomes writable when it is worth asking again; None: now and then.
        close: frees what it holds.
    """

    again: Callable[[], int]
    descriptor: int | None
    close: Callable[[], None]


class Question:
    """One notification of the kernel (struct seccomp_notif of <linux/seccomp.h>).

    Attributes:
        id: the kernel's name for it.
        thread: who asks.
        number: the system call.
        arguments: six of them, unsigned.
    """

    def __init__(self, data: bytes, confirm: Callable[["Question"], None]):
        self.id, self.thread, _, self.number, _, _, *self.arguments = NOTIFICATION.unpack(data)
        self._confirm = confirm

    def confirm(self) -> None:
        """Make sure that what was read so far came from who asks, not from one with its old id.

        Raises:
            OSError: it is gone (ENOENT).
        """
        self._confirm(self)

    def integer(self, index: int) -> int:
        """Return an argument as C's int."""
        return _INT.unpack_from(struct.pack("=Q", self.arguments[index]))[0]

    def read(self, address: int, size: int) -> bytes:
        """Return `size` bytes of the asking process.

        Raises:
            OSError: EFAULT when they are not all there; EPERM where it may not be traced.
        """
        data = self._read_some(address, size)
        if len(data) < size:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        return data

    def read_path(self, address: int) -> bytes:
        """Return the path at `address`, without its end mark.

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
        """Write into the asking process.

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
        """Return a copy of its descriptor `number`.

        Raises:
            OSError: EBADF; EPERM where it may not be traced.
        """
        return take_descriptor(self.thread, number)

    def open_descriptor(self, number: int) -> int:
        """Return an O_PATH descriptor of the file behind its descriptor `number` (or AT_FDCWD).

        Raises:
            OSError: EBADF.
        """
        try:
            return os.open(self._link(number), os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def open_path(self, base: int, path: bytes, *, follow: bool) -> int:
        """Return an O_PATH descriptor of `path` as the asking process would find it.

        Args:
            base: descriptor of the folder that it is relative to, or AT_FDCWD.
            path: not empty.
            follow: whether a symlink at its end is followed.

        Raises:
            OSError: it cannot be resolved; other links of /proc than one's descriptors: ELOOP.
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
