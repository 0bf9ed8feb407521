"""Judges whether changes in a repository make git run a program."""

import os
import re
import stat
from collections.abc import Collection

from agent_magics.exec.protected.git_places import git_parts
from agent_magics.exec.protected.snapshot import SnapshotEntry, take

# What in a repository's configuration makes git run a program, or read more configuration.
_KEYS = "|".join(
    (
        *("fsmonitor", "hookspath", "sshcommand", "pager", "editor", "askpass", "command"),
        *("textconv", "clean", "smudge", "process", "helper", "program", "gitproxy", "external"),
        *("driver", "difffilter", "templatedir", "uploadpack", "receivepack", "packobjectshook"),
        *("recentobjectshook", "alternaterefscommand", "tunnel", "smtpserver", r"\w*cmd"),
    )
)
_RUNS_PROGRAMS = re.compile(
    rf"""(?imx)
    (?: ^ | \] ) \ufeff?+ [^\S\n]*+  # at the start of a line, or in the line of its section
    (?: \[ [^\S\n]*+ (?: include | includeif | alias | pager ) \b
      | (?: {_KEYS} ) [^\S\n]*+ =
      | update [^\S\n]*+ = [^\S\n]*+ "?+ !  # of a submodule, by a command
    )"""
)


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
        new = is_now.content.splitlines()
        old = set((was.content or b"").splitlines()) if was is not None else set()
        added = b"\n".join(line for line in new if line not in old)
        return bool(_RUNS_PROGRAMS.search(added.decode("utf-8", "replace")))
    if name in ("commondir", "gitdir"):  # hooks and settings are elsewhere
        return True
    return name == "hooks" or "/hooks/" in f"{folder}/"


def what_git_would_run(place: str, protected: Collection[str]) -> str:
    """Describe what a new repository makes git run, or return ""; `protected` parts are skipped."""
    parts = [take(part, {}) for part in git_parts(place) if part not in protected]
    content = {path: entry.content for part in parts for path, entry in part.items()}
    hooks = [os.path.basename(path) for path in content if os.path.dirname(path).endswith("/hooks")]
    if hooks:
        return f"git will run its hooks ({', '.join(sorted(hooks)[:5])}); look at them first"
    if f"{place}/commondir" in content:
        return "git takes its hooks and settings from another folder; look at it first"
    texts = (text.decode("utf-8", "replace") for text in content.values() if text)
    runs = any(map(_RUNS_PROGRAMS.search, texts))
    return "its configuration makes git run programs; look at it first" if runs else ""
