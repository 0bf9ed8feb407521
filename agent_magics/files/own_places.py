"""Lists files that other programs execute later with the person's rights, which a model must not
write.

These are start files in home folders, and this kernel's own programs and modules. A model that
could write there would have escaped its sandbox.
"""

import os
import pwd
import site
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.git.repositories import is_named_for_git

# Our own: configuration of servers, approval rules, tools to load, digests of trusted files.
OWN_PARTS = (
    ".config/agent-magics",
    *(
        f".local/state/agent-magics/trusted-{what}"
        for what in ["agents", "mcp", "memory", "prompts", "rules", "settings", "skills", "tools"]
    ),
)
# For a home that is itself the workspace (Binder): files that a shell, Python, Jupyter, an editor,
# git or the desktop runs at its next start. Not every name with a dot (.gitignore and .github are
# part of a project), and not files that these programs change all the time.
HOME_PARTS = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile"),
    *(".zshrc", ".zprofile", ".zshenv", ".zlogin", ".kshrc", ".cshrc", ".tcshrc", ".login"),
    *(".inputrc", ".pam_environment", ".xprofile", ".xsessionrc", ".xinitrc"),
    *(".ssh/authorized_keys", ".ssh/config", ".ssh/environment", ".ssh/rc"),
    *(".ipython/profile_default/startup", ".ipython/profile_default/ipython_config.py"),
    *(".ipython/profile_default/ipython_kernel_config.py", ".ipython/extensions"),
    ".ipython/profile_default/ipython_config.json",
    ".ipython/profile_default/ipython_kernel_config.json",
    *(".jupyter/jupyter_server_config.py", ".jupyter/jupyter_server_config.json"),
    *(".jupyter/jupyter_notebook_config.py", ".jupyter/jupyter_notebook_config.json"),
    *(".jupyter/jupyter_lab_config.py", ".jupyter/jupyter_config.py", ".jupyter/custom"),
    *(".jupyter/jupyter_server_config.d", ".jupyter/serverconfig"),
    *(".jupyter/jupyter_lab_config.json", ".jupyter/jupyter_config.json"),
    *(".jupyter/jupyter_nbconvert_config.py", ".jupyter/jupyter_console_config.py"),
    *(".local/bin", ".local/lib", ".local/share/jupyter/kernels", ".local/share/applications"),
    *(".local/share/jupyter/labextensions", ".local/share/jupyter/nbextensions"),
    *(".local/share/systemd", ".config/systemd", ".config/autostart", ".config/environment.d"),
    *(".config/fish", ".config/git", ".config/pip", ".gitconfig", ".pythonrc", ".pdbrc"),
    *(".condarc", ".mambarc", ".Rprofile", ".vimrc", ".vim", ".emacs", ".tmux.conf", ".nanorc"),
    *(".emacs.d", ".config/emacs", ".config/vim", ".config/tmux", ".config/zsh"),
    *(".cargo/bin", ".cargo/config.toml", ".cargo/env", "bin"),
    # What start files load, and what they put on the path.
    *(".bash_completion", ".local/share/bash-completion", ".oh-my-zsh/custom", ".zlogout"),
    *(".oh-my-zsh/oh-my-zsh.sh", ".nvm/nvm.sh", ".pyenv/shims", ".pyenv/bin", ".asdf/asdf.sh"),
    *(".asdf/shims", ".rbenv/shims", ".rvm/scripts", ".sdkman/bin", ".poetry/env"),
    *(".p10k.zsh", ".fzf.bash", ".fzf.zsh", ".config/mise", ".local/share/mise/shims"),
    *(".xonshrc", ".config/xonsh", ".config/nushell", ".config/powershell", ".config/direnv"),
    *(".config/jupyter", ".config/nvim", ".Renviron", ".julia/config", ".gdbinit", ".lldbinit"),
    *(".sqliterc", ".duckdbrc", ".irbrc", ".octaverc", ".hgrc", ".subversion/config"),
    *(".pylintrc", ".config/pylintrc", ".mypy.ini", ".config/mypy"),
    *(".psqlrc", ".screenrc", ".config/plasma-workspace", ".kde/Autostart"),
    *(".forward", ".procmailrc", ".k5login", ".rhosts", ".shosts"),
    # Settings that name programs, or from where packages come.
    *(".aws/config", ".kube", ".docker/config.json", ".npmrc", ".yarnrc.yml", ".wgetrc", ".curlrc"),
    *(".config/uv", ".config/pypoetry", ".m2/settings.xml", ".gradle/init.d"),
    *OWN_PARTS,
)
_MOST_HOMES = 20  # maximal number of other users' homes to examine
_HOMES = ("/home", "/Users")
_PACKAGE = real_path(os.path.dirname(str(sys.modules["agent_magics"].__file__)))


def places_that_run_later(writable: Sequence[str]) -> list[str]:
    """Return the files and folders below `writable` that other programs execute later.

    Args:
        writable: absolute paths without symlinks. One that is itself such a place does not count:
            the person has opened it as the workspace.

    Returns:
        Absolute paths without symlinks; some may not exist.
    """
    at_home = [home for home in homes() if is_below(home, writable)]
    search = os.environ.get("PATH", "").split(os.pathsep)
    on_path = map(real_path, filter(os.path.isabs, search))
    places = {
        *(f"{home}/{part}" for home in at_home for part in HOME_PARTS),
        *(folder for folder in on_path if is_below(folder, at_home)),
        *kernel_places(),
    }
    return [path for path in places if is_below(path, writable) and path not in writable]


def make_own_places(writable: Sequence[str]) -> None:
    """Create our own folders in a home that commands may write, so that the sandbox can protect
    them.

    A missing folder cannot be protected: a command that outlives its call could create it and
    configure an MCP server there, which would be started.

    Args:
        writable: as in `places_that_run_later`.
    """
    home = real_path(os.path.expanduser("~"))
    if is_below(home, writable):
        for part in OWN_PARTS:
            with suppress(OSError):
                os.makedirs(f"{home}/{part}", mode=0o700, exist_ok=True)


def what_runs_later(path: str, writable: Sequence[str]) -> str:
    """Return why a symlink-free `path` below `writable` must not change, or ""."""
    for place in places_that_run_later(writable):
        if is_below(path, (place,)):
            at_home = place not in kernel_places()
            return "a program's start files" if at_home else "this kernel's own programs"
    return "hooks or settings of git" if is_named_for_git(path) else ""


def kernel_places() -> frozenset[str]:
    """Return the folders of this kernel's own programs and modules, with links resolved."""
    return _kernel_places(sys.prefix, sys.base_prefix)


def holds_kernel_places(path: str) -> bool:
    """Tell whether a folder is one of the kernel's own places, or contains one."""
    return any(is_below(place, (path,)) for place in kernel_places())


@lru_cache(maxsize=4)
def _kernel_places(prefix: str, base_prefix: str) -> frozenset[str]:
    folders = {prefix, base_prefix, *site.getsitepackages(), site.getusersitepackages(), _PACKAGE}
    # The standard library, in case /usr is the workspace.
    folders.add(os.path.dirname(os.__file__))
    # In case the prefix is the workspace itself, its parts that must not change.
    folders |= {f"{prefix}/{name}" for name in ("bin", "lib", "pyvenv.cfg")}
    return frozenset(real_path(folder) for folder in folders)


# -- homes ---------------------------------------------------------------------------------------


def homes() -> tuple[str, ...]:
    """Return the accessible home folders of this machine, one's own first."""
    return _homes(os.path.expanduser("~"), os.getuid(), tuple(map(folder_stamp, _HOMES)))


@lru_cache(maxsize=4)
def _homes(own: str, uid: int, stamps: tuple[int, ...]) -> tuple[str, ...]:
    """List home folders; a new `stamps` invalidates the cache when one is added or removed."""
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
    """Return a folder's modification time (ns), which changes when an entry is added or removed;
    -1 without a folder.
    """
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1
