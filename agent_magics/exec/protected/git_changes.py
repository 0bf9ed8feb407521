"""Judges whether changes in a repository make git run a program."""

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, starmap

from agent_magics.exec.protected.git_places import git_parts
from agent_magics.exec.protected.snapshot import SnapshotEntry, take
from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.git.repositories import git_folders, is_named_for_git
from agent_magics.files.git.settings import settings_in
from agent_magics.files.plain_files import NotPlain, read_plain
from agent_magics.protocol.errors import clause

# What in a repository's configuration makes git run a program, or read more configuration.
_KEYS = "|".join(
    (
        *("fsmonitor", "hookspath", "pager", "editor", "askpass", r"[\w-]*(?:command|cmd)"),
        *("textconv", "clean", "smudge", "process", "helper", "program", "gitproxy", "external"),
        *("driver", "difffilter", "templatedir", "uploadpack", "receivepack", r"\w*hook"),
        *("tunnel", "smtpserver", "path", "httpd", "modulepath", "vcs", "allow"),
    )
)
_RUNS_PROGRAMS = re.compile(rf"(?s)(?:include|includeif|alias|pager)\..*|.*\.(?:{_KEYS})")
_EXEC = re.compile(r"[ \t]*(?:exec|x)[ \t]")


def makes_git_run(path: str, was: SnapshotEntry | None, is_now: SnapshotEntry | None) -> bool:
    """Tell whether a change in a repository makes git run a program, wait, or look elsewhere.

    Args:
        path: the file.
        was: its entry before; None where it is new.
        is_now: its entry now; None where it was removed.
    """
    if is_now is None:
        return False
    folder, name = os.path.split(path)
    if name in ("config", "config.worktree"):
        # No file, or too large: git waits for it, or reads what is not read here.
        if is_now.content is None or not stat.S_ISREG(is_now.mode):
            return True
        old = set(_settings_in(was.content or b"")) if was is not None else set()
        added = [each for each in _settings_in(is_now.content) if each not in old]
        return any(name == "core.worktree" or _runs_program(name, value) for name, value in added)
    if name in ("commondir", "gitdir"):  # hooks and settings are elsewhere
        return True
    return name == "hooks" or "/hooks/" in f"{folder}/" or is_named_for_git(path)


def what_git_would_run(
    place: str, protected: Collection[str], roots: Sequence[str] = ("/",)
) -> str:
    """Describe what a new repository makes git run, or change outside `roots`, or return "".

    Args:
        place: its ``.git``, or its folder where it has none.
        protected: parts that are not looked at.
        roots: the folders in which it may change files.
    """
    # What stands elsewhere is the person's own; a configuration here that names it is told.
    own = (*git_folders(place), *roots)
    mine = (part for part in git_parts(place) if part == place or is_below(part, own))
    parts = [take(part, {}) for part in mine if part not in protected]
    found = {path: entry for part in parts for path, entry in part.items()}
    hooks = [os.path.basename(path) for path in found if os.path.dirname(path).endswith("/hooks")]
    if hooks:
        return f"git will run its hooks ({', '.join(sorted(hooks)[:5])}); look at them first"
    is_led = any(stat.S_ISLNK(entry.mode) for entry in found.values())
    if is_led or not all(map(os.path.isdir, git_folders(place)[1:])):
        return "git takes its hooks and settings from another folder; look at it first"
    files = {path: entry.content for path, entry in found.items() if not stat.S_ISDIR(entry.mode)}
    if None in files.values():
        return "its settings are no files, or too large to be looked at; look at them first"
    settings = {path: list(_settings_in(content or b"")) for path, content in files.items()}
    if any(starmap(_runs_program, chain.from_iterable(settings.values()))):
        return "its configuration makes git run programs; look at it first"
    if not all(is_below(_worktree(path, each), roots) for path, each in settings.items()):
        return "its configuration makes git change files elsewhere; look at it first"
    return ""


def _settings_in(content: bytes) -> Iterator[tuple[str, str]]:
    return settings_in(os.fsdecode(content))


def _runs_program(name: str, value: str) -> bool:
    """Tell whether a setting makes git run a program, or read more settings."""
    of_submodule = name.endswith(".update") and value.startswith("!")
    return of_submodule or _RUNS_PROGRAMS.fullmatch(name) is not None


def _worktree(config: str, settings: Sequence[tuple[str, str]]) -> str:
    """Return the folder whose files git would change by the settings of a file."""
    folder = os.path.dirname(config)
    named = [value for name, value in settings if name == "core.worktree"]
    return real_path(os.path.join(folder, named[-1])) if named else folder


def what_a_rebase_runs(place: str) -> frozenset[str]:
    """Return the commands that git will run when an unfinished rebase of a repository goes on."""
    lines = list[str]()
    for folder in git_folders(place)[:1]:
        todo = f"{folder}/rebase-merge/git-rebase-todo"
        try:
            lines += os.fsdecode(read_plain(todo)).splitlines()
        except NotPlain as error:
            lines.append(f"exec (unknown: {clause(error)})")
        except OSError:  # there is no rebase
            continue
    return frozenset(line.strip() for line in lines if _EXEC.match(line))
