"""Switches between the users that tests run as: the present one, and as root an ordinary one."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

from tests.support import forks

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


def call_as_user(act: Callable[[str], Any]) -> Any:
    """Call `act` in a fork, as an ordinary user who has an empty folder; return its result.

    Root may look into any folder, and write any file.

    Args:
        act: a function whose result can be pickled; it gets the folder, in which it works.
    """

    def run() -> Any:
        become(USER)
        os.environ["HOME"] = top
        os.chdir(top)
        return act(top)

    with tempfile.TemporaryDirectory(dir="/tmp") as top:  # each folder above is open to all
        give(USER, top)
        return forks.call(run)
