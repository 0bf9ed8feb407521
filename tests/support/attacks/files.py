"""Attacks on files: those outside the workspace, secrets, and what runs later."""

import array
import ctypes
import errno
import fcntl
import os
import shutil
import stat
import threading

from tests.support.attacks.syscalls import syscall
from tests.support.attacks.table import (
    DEEP,
    LATER,
    SECRETS,
    TERMINALS,
    WRITES,
    World,
    attack,
    racing,
    read,
    write,
)

# -- files outside the workspace ------------------------------------------------------------------


def outside(number: int, title: str, **more):
    """Define a row whose target is the file `outside/row<number>`."""
    return attack(number, title, WRITES, "changed", target=f"outside/row{number}", **more)


@outside(1, "../ traversal write")
def _(w: World):
    write(f"{w.workspace}/../outside/row1")


@outside(2, "absolute write")
def _(w: World):
    write(f"{w.outside}/row2")


@outside(3, "symlink in the workspace to outside, written through")
def _(w: World):
    os.symlink(f"{w.outside}/row3", f"{w.workspace}/row3")
    write(f"{w.workspace}/row3")


@outside(4, "symlinked folder")
def _(w: World):
    os.symlink(w.outside, f"{w.workspace}/row4")
    write(f"{w.workspace}/row4/row4")


@outside(5, "hard link of an outside file in the workspace, written through")
def _(w: World):
    os.link(f"{w.outside}/row5", f"{w.workspace}/row5")
    write(f"{w.workspace}/row5")


@outside(6, "an outside file renamed (mv)")
def _(w: World):
    os.rename(f"{w.outside}/row6", f"{w.workspace}/row6")


@outside(7, "a workspace file renamed over an outside file")
def _(w: World):
    write(f"{w.workspace}/row7")
    os.rename(f"{w.workspace}/row7", f"{w.outside}/row7")


@outside(8, "/proc/self/root path")
def _(w: World):
    write(f"/proc/self/root{w.outside}/row8")


@outside(9, "/proc/self/cwd/.. path")
def _(w: World):
    write("/proc/self/cwd/../outside/row9")


@outside(10, "RENAME_EXCHANGE of an outside and an inside file")
def _(w: World):
    write(f"{w.workspace}/row10")
    exchange, here = 2, -100  # RENAME_EXCHANGE of <linux/fs.h>, AT_FDCWD of <fcntl.h>
    ours, theirs = f"{w.workspace}/row10".encode(), f"{w.outside}/row10".encode()
    syscall("renameat2", here, ours, here, theirs, exchange)


@outside(11, "an outside file truncated by opening it")
def _(w: World):
    os.close(os.open(f"{w.outside}/row11", os.O_WRONLY | os.O_TRUNC))


@outside(12, "an outside file deleted")
def _(w: World):
    os.unlink(f"{w.outside}/row12")


@outside(80, "truncate(2) by path")
def _(w: World):
    os.truncate(f"{w.outside}/row80", 0)


@outside(13, "chmod of an outside file")
def _(w: World):
    os.chmod(f"{w.outside}/row13", 0o777)


@outside(14, "fchmod by a descriptor opened for reading")
def _(w: World):
    os.fchmod(os.open(f"{w.outside}/row14", os.O_RDONLY), 0o777)


@outside(15, "chmod through a symlink of the workspace")
def _(w: World):
    os.symlink(f"{w.outside}/row15", f"{w.workspace}/row15")
    os.chmod(f"{w.workspace}/row15", 0o777)


@outside(16, "setxattr on an outside file")
def _(w: World):
    os.setxattr(f"{w.outside}/row16", "user.escaped", b"1")


_TIME_REMAINS = (
    "a command can set the times of files that you own: Landlock does not see that. Nothing else of"
    " a file changes by it, but `make` may build too much or too little."
)


@outside(17, "utime on an outside file", open_in=(1,), remains=_TIME_REMAINS)
def _(w: World):
    os.utime(f"{w.outside}/row17", (1, 1))


@attack(18, "setuid bit on a workspace file", WRITES, "reached")
def _(w: World):
    path = f"{w.workspace}/row18"
    write(path)
    os.chmod(path, 0o4755)
    mode = os.stat(path).st_mode
    if not mode & stat.S_ISUID:
        raise PermissionError(errno.EPERM, "the bit was dropped")
    return oct(mode)


@attack(47, "a startup file of IPython", WRITES, "changed", target="home/.ipython/startup/evil.py")
def _(w: World):
    write(f"{w.home}/.ipython/startup/evil.py")


@attack(48, "~/.bashrc appended to", WRITES, "changed", target="home/.bashrc")
def _(w: World):
    with open(f"{w.home}/.bashrc", "a", encoding="utf-8") as file:
        file.write("escaped\n")


@attack(49, "Jupyter's settings", WRITES, "changed", target="home/.jupyter/jupyter_config.py")
def _(w: World):
    write(f"{w.home}/.jupyter/jupyter_config.py")


@attack(50, "a .pth in site-packages outside", WRITES, "changed", target="outside/lib/evil.pth")
def _(w: World):
    write(f"{w.outside}/lib/evil.pth")


_UNIT = "home/.config/systemd/user/evil.service"


@attack(52, "a systemd --user unit", WRITES, "changed", target=_UNIT)
def _(w: World):
    write(f"{w.root}/{_UNIT}")


@attack(75, "a program put into a folder of PATH", WRITES, "changed", target="outside/bin/git")
def _(w: World):
    write(f"{w.outside}/bin/git")


@outside(79, "a descriptor for reading reopened for writing through /proc/self/fd")
def _(w: World):
    reading = os.open(f"{w.outside}/row79", os.O_RDONLY)
    write(f"/proc/self/fd/{reading}")


@outside(81, "futimens by a descriptor opened for reading", open_in=(1,), remains=_TIME_REMAINS)
def _(w: World):
    os.utime(os.open(f"{w.outside}/row81", os.O_RDONLY), (1, 1))


_SET_FLAGS, _NO_DUMP = 0x40086602, 0x40  # FS_IOC_SETFLAGS, FS_NODUMP_FL of <linux/fs.h>


@outside(82, "chattr by a descriptor opened for reading")
def _(w: World):
    flags = array.array("l", [_NO_DUMP])
    fcntl.ioctl(os.open(f"{w.outside}/row82", os.O_RDONLY), _SET_FLAGS, flags)


@outside(83, "chown of an outside file", who="root")
def _(w: World):
    os.chown(f"{w.outside}/row83", 4321, 4321)


@attack(84, "a new folder outside", WRITES, "changed", target="outside/row84new")
def _(w: World):
    os.mkdir(f"{w.outside}/row84new")


@attack(85, "a new symlink outside", WRITES, "changed", target="outside/row85new")
def _(w: World):
    os.symlink("/", f"{w.outside}/row85new")


@attack(
    86, "an unnamed file (O_TMPFILE) linked outside", WRITES, "changed", target="outside/row86new"
)
def _(w: World):
    unnamed = os.open(w.workspace, os.O_TMPFILE | os.O_WRONLY)
    here, follow = -100, 0x400  # AT_FDCWD, AT_SYMLINK_FOLLOW of <fcntl.h>
    link, name = f"/proc/self/fd/{unnamed}", f"{w.outside}/row86new"
    syscall("linkat", here, link.encode(), here, name.encode(), follow)


@attack(87, "a fifo outside", WRITES, "changed", target="outside/row87new")
def _(w: World):
    os.mkfifo(f"{w.outside}/row87new")


def _swapping(inside: str, outside_: str, link: str, work) -> None:
    """Call `work` repeatedly while a thread points `link` in turn inside and outside."""
    stop = threading.Event()

    def swap() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            os.symlink(outside_ if turn % 2 else inside, f"{link}.new")
            os.rename(f"{link}.new", link)

    os.symlink(inside, link)
    thread = threading.Thread(target=swap)
    thread.start()
    refused = None
    try:
        for _ in racing():
            try:
                work()
            except OSError as error:
                refused = error
    finally:
        stop.set()
        thread.join()
    if refused is not None:
        raise refused


@outside(88, "chmod of a path that is swapped while it is judged")
def _(w: World):
    write(f"{w.workspace}/row88")
    link = f"{w.workspace}/row88.link"
    _swapping(f"{w.workspace}/row88", f"{w.outside}/row88", link, lambda: os.chmod(link, 0o777))


@outside(89, "chmod with a path that another thread rewrites in memory")
def _(w: World):
    inside, outside_ = f"{w.outside}/../workspace/own89", f"{w.outside}/../outside/row89"
    write(inside)
    buffer = ctypes.create_string_buffer(inside.encode(), 4096)
    size = max(len(inside), len(outside_)) + 1
    stop = threading.Event()

    def rewrite() -> None:
        texts = [path.encode().ljust(size, b"\0") for path in (inside, outside_)]
        while not stop.is_set():
            for text in texts:
                ctypes.memmove(buffer, text, size)

    thread = threading.Thread(target=rewrite)
    thread.start()
    refused = None
    for _ in racing():
        try:
            syscall("fchmodat", -100, buffer, 0o777)
        except OSError as error:
            # A path that is half one and half the other is just not there.
            refused = refused if error.errno == errno.ENOENT else error
    stop.set()
    thread.join()
    if refused is not None:
        raise refused


@attack(90, "the workspace itself renamed away", WRITES, "reached", run="alone")
def _(w: World):
    os.rename(w.workspace, f"{w.root}/workspace.gone")
    os.rename(f"{w.root}/workspace.gone", w.workspace)
    return "renamed"


@attack(
    148,
    "a lease on an outside file: whoever else opens it waits",
    WRITES,
    "reached",
    target="outside/row148",
    lacking="the file system has no leases",
)
def _(w: World):
    with open(f"{w.outside}/row148", "rb") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    return "leased"


# -- secrets --------------------------------------------------------------------------------------


@attack(19, "~/.ssh/id_rsa read", SECRETS, "secret")
def _(w: World):
    return read(f"{w.home}/.ssh/id_rsa")


@attack(20, "~/.ssh read through /proc/self/root and a symlink", SECRETS, "secret")
def _(w: World):
    os.symlink(f"/proc/self/root{w.home}/.ssh", f"{w.workspace}/row20")
    return read(f"{w.workspace}/row20/id_rsa")


@attack(21, "a secret hard-linked into the workspace, then read", SECRETS, "secret")
def _(w: World):
    os.link(f"{w.home}/.ssh/id_rsa", f"{w.workspace}/row21")
    return read(f"{w.workspace}/row21")


_ENV_REMAINS = (
    "a command can read a `.env` inside the workspace: Landlock takes nothing back below a folder"
    " that it grants. The file tools ask, and no network is there to send it to."
)


@attack(22, ".env of the workspace read", SECRETS, "secret", open_in=(1,), remains=_ENV_REMAINS)
def _(w: World):
    return read(f"{w.workspace}/.env")


_SECOND_NAME_REMAINS = (
    "a command can read a secret by a second name (a hard link) that it has inside the workspace,"
    " as it can a `.env` there. It cannot make one of a file outside. The file tools ask."
)


def second_name(number: int, title: str):
    """Define a row about a secret file of the workspace under another name."""
    remains = _SECOND_NAME_REMAINS
    return attack(number, title, SECRETS, "secret", open_in=(1,), remains=remains)


@second_name(145, "a second name of .env that stood in the workspace before, read")
def _(w: World):
    return read(f"{w.workspace}/aa/7/second-name")


@second_name(146, "a second name of .env made, then read")
def _(w: World):
    os.link(f"{w.workspace}/.env", f"{w.workspace}/row146")
    return read(f"{w.workspace}/row146")


@second_name(147, "a second name of ~/.ssh/id_rsa that stood in the workspace before, read")
def _(w: World):
    return read(f"{w.workspace}/aa/8/second-name")


@attack(53, "an API key in the environment", SECRETS, "secret")
def _(w: World):
    found = os.environ.get("OPENAI_API_KEY", "")
    if not found:
        raise PermissionError(errno.EACCES, "no key in the environment")
    return found


@attack(91, "a secret folder renamed into the workspace", SECRETS, "secret")
def _(w: World):
    os.rename(f"{w.home}/.aws", f"{w.workspace}/row91")
    return read(f"{w.workspace}/row91/credentials")


@attack(
    92, "a secret that stands beside the folder of another (Jupyter's runtime)", SECRETS, "secret"
)
def _(w: World):
    return read(w.connection_file)


# -- what runs later ------------------------------------------------------------------------------

_NOTEBOOK_REMAINS = (
    "Landlock cannot hold it; you are told that it changed. It is not put back, because the front"
    " end may have saved it in the same moment: close it without saving, or reload it."
)
_TRIPWIRE = (
    "Landlock cannot hold it; the file is compared four times a second while a command runs and at"
    " its end, put back, and you are told. Until then a process outside the sandbox could still"
    " run it."
)


@attack(
    45,
    "a hook planted in the workspace's .git",
    LATER,
    "changed",
    target="workspace/.git/hooks/pre-commit",
    open_in=(1,),
    remains=_TRIPWIRE,
)
def _(w: World):
    write(f"{w.workspace}/.git/hooks/pre-commit", "#!/bin/sh\ntouch escaped\n")


@attack(
    46,
    "core.fsmonitor planted in .git/config",
    LATER,
    "changed",
    target="workspace/.git/config",
    open_in=(1,),
    remains=_TRIPWIRE,
)
def _(w: World):
    with open(f"{w.workspace}/.git/config", "a", encoding="utf-8") as file:
        file.write("[core]\n\tfsmonitor = touch escaped\n")


@attack(
    143,
    "a hook planted in a repository six levels below, behind 300 folders",
    LATER,
    "changed",
    target=f"{DEEP}/.git/hooks/pre-commit",
    open_in=(1,),
    remains=_TRIPWIRE,
)
def _(w: World):
    write(f"{w.root}/{DEEP}/.git/hooks/pre-commit", "#!/bin/sh\ntouch escaped\n")


@attack(
    144,
    ".env six levels below, behind 300 folders, read",
    SECRETS,
    "secret",
    open_in=(1,),
    remains=_ENV_REMAINS,
)
def _(w: World):
    return read(f"{w.root}/{DEEP}/.env")


@attack(
    51,
    "the open notebook's file changed",
    LATER,
    "changed",
    target="workspace/nb/open.ipynb",
    open_in=(1,),
    remains=_NOTEBOOK_REMAINS,
)
def _(w: World):
    write(f"{w.workspace}/nb/open.ipynb", "{}")


@attack(
    93,
    ".git renamed away and made anew with a hook",
    LATER,
    "changed",
    target="repository/.git/hooks/pre-commit",
    open_in=(1,),
    remains=_TRIPWIRE,
)
def _(w: World):
    os.rename(f"{w.repository}/.git", f"{w.repository}/git.old")
    shutil.copytree(f"{w.repository}/git.old", f"{w.repository}/.git")
    write(f"{w.repository}/.git/hooks/pre-commit", "#!/bin/sh\ntouch escaped\n")


@attack(
    94,
    "the notebook's folder renamed away and made anew",
    LATER,
    "changed",
    target="repository/nb/open.ipynb",
    open_in=(1,),
    remains=_NOTEBOOK_REMAINS,
)
def _(w: World):
    os.rename(f"{w.repository}/nb", f"{w.repository}/nb.old")
    os.mkdir(f"{w.repository}/nb")
    write(f"{w.repository}/nb/open.ipynb", "{}")


@attack(
    95,
    ".git/commondir planted: git takes hooks and settings from elsewhere",
    LATER,
    "changed",
    target="repository/.git/commondir",
    open_in=(1, 2),
    remains=_TRIPWIRE,
)
def _(w: World):
    write(f"{w.repository}/.git/commondir", "../evil\n")


# -- terminals, temporary files -------------------------------------------------------------------


@attack(66, "escape codes written to the person's other terminal", TERMINALS, "received")
def _(w: World):
    write(w.terminal, "row66")


@attack(69, "a file of another process in the shared /tmp", TERMINALS, "changed", target="@shared")
def _(w: World):
    write(w.shared)
