"""Switches between the users that tests run as: the present one, and as root an ordinary one."""

import os

ME = os.getuid()
USER = ME or 1001


def become(uid: int) -> None:
    """Change this process to user `uid`, in no group but the one of that number."""
    if uid != ME:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def give(uid: int, *paths: str) -> None:
    """Change the owner of `paths`; of links themselves, not their targets."""
    if uid != ME:
        for path in paths:
            os.lchown(path, uid, uid)
