"""What runs later by itself with the person's rights: start files in their home, this kernel's own
programs and modules. A model that could write there would have left its sandbox.
"""

import os
import pwd
import site
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from agent_magics.backends.beneath import real_path

# Our own: servers that start, rules that allow, tools that load, and what a person has trusted.
OWN_PARTS = (
    ".config/agent-magics",
    *(f".local/state/agent-magics/trusted-{what}" for what in ("mcp", "rules", "tools")),
)
# In a home that is itself the workspace (Binder): what a shell, Python, Jupyter, an editor, git or
# the desktop runs by itself the next time. Not every name with a dot (.gitignore and .github are
# part of a project), and not what their programs change all the time by themselves.
HOME_PARTS = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"),
    *(".zshrc", ".zprofile", ".zshenv", ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".login"),
    *(".inputrc", ".pam_environment", ".xprofile", ".xsessionrc", ".xinitrc"),
    *(".ssh/authorized_keys", ".ssh/config", ".ssh/environment", ".ssh/rc"),
    *(".ipython/profile_default/startup", ".ipython/profile_default/ipython_config.py"),
    *(".ipython/profile_default/ipython_kernel_config.py", ".ipython/extensions"),
    *(".jupyter/jupyter_server_config.py", ".jupyter/jupyter_server_config.json"),
    *(".jupyter/jupyter_notebook_config.py", ".jupyter/jupyter_notebook_config.json"),
    *(".jupyter/jupyter_lab_config.py", ".jupyter/jupyter_config.py", ".jupyter/custom"),
    *(".jupyter/jupyter_server_config.d", ".jupyter/serverconfig"),
    *(".local/bin", ".local/lib", ".local/share/jupyter/kernels", ".local/share/applications"),
    *(".local/share/jupyter/labextensions", ".local/share/jupyter/nbextensions"),
    *(".local/share/systemd", ".config/systemd", ".config/autostart", ".config/environment.d"),
    *(".config/fish", ".config/git", ".config/pip", ".gitconfig", ".pythonrc", ".pdbrc"),
    *(".condarc", ".mambarc", ".Rprofile", ".vimrc", ".vim", ".emacs", ".tmux.conf", ".nanorc"),
    *(".cargo/bin", ".cargo/config.toml", "bin"),
    *OWN_PARTS,
)
_MOST_HOMES = 20  # of other people, where their folders can be looked into
_HOMES = ("/home", "/Users")
_PACKAGE = real_path(Path(__file__).parents[1])


def is_below(path: str, folders: Sequence[str]) -> bool:
    """Tell whether `path` is one of `folders` or stands below one; by their text."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def places_that_run_later(writable: Sequence[str]) -> list[str]:
    """Return such places below `writable`, as symlink-free absolute paths; some may be absent.

    Args:
        writable: absolute paths without symlinks. One that is such a place itself does not count:
            the person has opened it as the workspace.
    """
    at_home = (
        f"{home}/{part}" for home in homes() if is_below(home, writable) for part in HOME_PARTS
    )
    places = {*at_home, *_kernel_places(sys.prefix, sys.base_prefix)}
    return [path for path in places if is_below(path, writable) and path not in writable]


def make_own_places(writable: Sequence[str]) -> None:
    """Make our own folders in a home that commands may write: what is absent cannot be held.

    A command that outlives its call could else put a server's settings there, which would start it.

    Args:
        writable: as of `places_that_run_later`.
    """
    home = real_path(os.path.expanduser("~"))
    if is_below(home, writable):
        for part in OWN_PARTS:
            with suppress(OSError):
                os.makedirs(f"{home}/{part}", mode=0o700, exist_ok=True)


def what_runs_later(path: str, writable: Sequence[str]) -> str:
    """Say why a symlink-free `path` below `writable` stays as it is, or return ""."""
    for place in places_that_run_later(writable):
        if is_below(path, (place,)):
            at_home = place not in _kernel_places(sys.prefix, sys.base_prefix)
            return "a program's start files" if at_home else "this kernel's own programs"
    return ""


@lru_cache(maxsize=4)
def _kernel_places(prefix: str, base_prefix: str) -> frozenset[str]:
    folders = {prefix, base_prefix, *site.getsitepackages(), site.getusersitepackages(), _PACKAGE}
    # Where the prefix is the workspace itself, these are what must stay.
    folders |= {f"{prefix}/{name}" for name in ("bin", "lib", "pyvenv.cfg")}
    return frozenset(real_path(folder) for folder in folders)


# -- homes ---------------------------------------------------------------------------------------


def homes() -> tuple[str, ...]:
    """Return the home folders of this machine that may be looked into, one's own first."""
    return _homes(os.path.expanduser("~"), os.getuid(), tuple(map(folder_stamp, _HOMES)))


@lru_cache(maxsize=4)
def _homes(own: str, uid: int, stamps: tuple[int, ...]) -> tuple[str, ...]:
    """Look the homes up; an equal `stamps` says that none has come or gone."""
    found = [own, *_home_of(uid), "/root"]
    for folder in _HOMES:
        try:
            found += sorted(entry.path for entry in os.scandir(folder))[:_MOST_HOMES]
        except OSError:
            continue
    real = dict.fromkeys(real_path(home) for home in found if os.path.isabs(home))
    return tuple(home for home in real if home != "/" and os.access(home, os.X_OK))


def _home_of(uid: int) -> list[str]:
    try:
        return [pwd.getpwuid(uid).pw_dir]
    except KeyError:  # a container's user without a name
        return []


def folder_stamp(folder: str) -> int:
    """Return what changes with every name that comes or goes in it; -1 where there is no folder."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1
