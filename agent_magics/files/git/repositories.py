"""Tells where a repository's folders are, and what git reads elsewhere because of its settings."""

import os
import re
from collections.abc import Sequence
from functools import lru_cache

from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.git.settings import settings_in
from agent_magics.files.plain_files import file_stamp, read_plain

_MOST_CONFIGURATIONS = 20  # limit of files that include each other
_NAMES_FILE = re.compile(r"(?s)core\.hookspath|include\.path|includeif\..*\.path")


def git_folders(dot_git: str) -> tuple[str, ...]:
    """Return the folders that git reads for a repository, without symlinks; () without any.

    The second one is that of the repository to which a linked worktree belongs.

    Args:
        dot_git: the path of ``.git``, or of the folder of a bare repository.
    """
    place = real_path(dot_git)
    if not os.path.isdir(place):  # a file that names it
        named = _path_in(place, "gitdir: ")
        if not named:
            return ()
        place = real_path(os.path.join(os.path.dirname(place), named))
    if not os.path.isdir(place):
        return (place,)
    common = _path_in(f"{place}/commondir")
    return tuple(dict.fromkeys((place, real_path(os.path.join(place, common)))))


def _path_in(path: str, before: str = "") -> str:
    """Return the path that is the content of a small file, exactly as git reads it, or ""."""
    try:
        text = os.fsdecode(read_plain(path, links=True))
    except OSError:
        return ""
    named = text.rstrip("\r\n").partition("\0")[0]
    return named.removeprefix(before) if named.startswith(before) else ""


def named_for_git(git_folder: str, dot_git: str) -> list[str]:
    """Return the hooks and the configuration that git reads elsewhere because the configuration of
    a repository, or of its user, says so.

    Args:
        git_folder: one of `git_folders`.
        dot_git: as given for these; beside it relative folders of hooks are.

    Returns:
        Absolute paths, without symlinks in their folders; some may not exist.
    """
    own = (f"{git_folder}/config", f"{git_folder}/config.worktree")
    return _named_by((*_of_user(), *own), os.path.dirname(dot_git))


def is_named_for_git(path: str) -> bool:
    """Tell whether git reads a file because the configuration of a repository around it, or of its
    user, says so.
    """
    named = list[str]()
    folder = path
    while len(folder := os.path.dirname(folder)) > 1:
        dot_git = f"{folder}/.git"
        if os.path.lexists(dot_git):
            for git_folder in git_folders(dot_git):
                named += named_for_git(git_folder, dot_git)
    named = named or _named_by(_of_user(), os.path.dirname(path))
    return is_below(path, [*named, *map(real_path, named)])


def _named_by(configurations: Sequence[str], top: str) -> list[str]:
    """Return what files of git's settings name, and those that they include; `top` is the folder of
    the repository.
    """
    todo, found, read = [*configurations], dict[str, None](), set[str]()
    while todo and len(read) < _MOST_CONFIGURATIONS:
        file = todo.pop(0)
        read.add(file)
        for is_hooks, named in _named_in(file, file_stamp(file)):
            folder, name = os.path.split(named.rstrip("/"))
            start = top if is_hooks else os.path.dirname(file)
            path = os.path.normpath(f"{real_path(os.path.join(start, folder))}/{name}")
            found[path] = None
            if not is_hooks and path not in read:
                todo.append(path)
    return list(found)


def _of_user() -> tuple[str, ...]:
    home = os.path.expanduser("~")
    settings = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    return "/etc/gitconfig", f"{settings}/git/config", f"{home}/.gitconfig"


@lru_cache(maxsize=256)
def _named_in(config: str, stamp: tuple[int, ...]) -> tuple[tuple[bool, str], ...]:
    """Return (whether it is the folder of hooks, path) for all that a file of git's settings names;
    `stamp` only invalidates the cache.
    """
    if not stamp:
        return ()
    try:
        text = os.fsdecode(read_plain(config, links=True))
    except OSError:
        return ()
    named = dict[tuple[bool, str], None]()
    for name, value in settings_in(text):
        if value and _NAMES_FILE.fullmatch(name):
            # Git before 2.45 reads white space within a value as spaces.
            for path in (value, re.sub(r"\s", " ", value)):
                named[name == "core.hookspath", os.path.expanduser(path)] = None
    return tuple(named)
