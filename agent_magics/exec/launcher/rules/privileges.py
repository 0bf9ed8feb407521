"""Drops root's privileges: a command of uid 0 (Colab, containers) is confined like any other."""

import errno
import struct

from agent_magics.exec.launcher.linux import PR_SET_NO_NEW_PRIVS, prctl, syscall
from agent_magics.exec.launcher.syscalls import number_of

# <linux/prctl.h>, <linux/securebits.h>
_PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 24, 28
# NOROOT, NO_SETUID_FIXUP and NO_CAP_AMBIENT_RAISE with their locks, and KEEP_CAPS locked off
_SECUREBITS = 0b11101111
_MOST_CAPABILITIES = 64

_CAPABILITY_HEADER = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this thread
_NO_CAPABILITIES = bytes(24)


def give_up_privileges() -> None:
    """Drop every capability irrevocably; no exec of any program restores one.

    Raises:
        OSError: the kernel refuses.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    try:
        # Else an exec by uid 0 restores all.
        prctl(_PR_SET_SECUREBITS, _SECUREBITS)
        for capability in range(_MOST_CAPABILITIES):
            prctl(_PR_CAPBSET_DROP, capability)
    except OSError as error:
        # EINVAL: that was the last one. EPERM: we have no CAP_SETPCAP; then no_new_privs still
        # ensures that an exec cannot give more than there was, which is none.
        if error.errno not in (errno.EINVAL, errno.EPERM):
            raise
    syscall(number_of("capset"), _CAPABILITY_HEADER, _NO_CAPABILITIES)
