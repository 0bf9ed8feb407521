"""Resolves paths and decides whether each may be read or written; no other module decides that.

A path is judged by its target after resolving every symlink, never by its text alone.
"""

import difflib
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from agent_magics.files.beneath import PathChanged, is_below, real_path
from agent_magics.files.own_places import what_runs_later
from agent_magics.files.secret_places import (
    REASON_OF,
    Inodes,
    inodes_of,
    moved_places,
    secret_inodes,
)
from agent_magics.files.survey import survey
from agent_magics.protocol.errors import RespondToModel, clause
from agent_magics.text.brief import brief_line

_DOTTED = "|".join(re.escape(place[1:]) for place in REASON_OF if place[0] == ".")
_UNDOTTED = "|".join(re.escape(place) for place in REASON_OF if place[0] != ".")
# A search judges each file, and few names have a dot: it rules out most places at once.
_ANY_PLACE = re.compile(rf"/(\.(?:{_DOTTED})|{_UNDOTTED})/")
_KEY_NAMES = frozenset(
    {"id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk"}
)
_SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/")
_HARMLESS_IN_SYSTEM = (
    *(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "loadavg", "uptime", "version", "stat")),
    *("/sys/fs/cgroup/", "/sys/devices/system/cpu/", "/sys/class/", "/dev/null"),
)
_KERNEL_FILE_STARTS = ("kernel-", "jpserver-", "nbserver-")
_HARMLESS_ENV_ENDINGS = (".example", ".template", ".sample")
_NEVER_WRITTEN_BELOW = {
    ".git": "git's own folder",
    ".agent_magics": "the project's agent settings",
}
_MOST_NAMES_COMPARED = 5_000
_SHOWN = 200  # characters of a path in a message
_SHARED_FOR = 0.5  # seconds that a survey of the workspace holds for further hard links


def resolve_path(path: str, cwd: Path) -> Path:
    """Return `path` as an absolute path with every symlink resolved; it need not exist.

    Args:
        path: as a person or a model wrote it; ``~`` is expanded.
        cwd: the folder to which a relative path is relative.

    Raises:
        RespondToModel: `path` is empty, or one that the system does not look up.
    """
    return _looked_up(literal_path(path, cwd))


def _looked_up(path: Path) -> Path:
    """Resolve every symlink; refuse names that are too long, and folders without access."""
    real = Path(_real(path))
    try:
        real.is_symlink()  # which passes over what is missing
    except OSError as error:
        raise RespondToModel(f"{brief_line(str(path), _SHOWN)}: {clause(error)}.") from None
    return real


def _real(path: str | os.PathLike[str]) -> str:
    try:
        return real_path(path)
    except PathChanged as error:
        raise RespondToModel(f"{path} {clause(error)}; call again when it is at rest.") from None


def entry_path(path: str, cwd: Path) -> Path:
    """Return the absolute path of the entry that `path` names, resolving its folder but not a final
    link.

    Raises:
        RespondToModel: `path` is empty, or one that the system does not look up.
    """
    literal = literal_path(path, cwd)
    resolved = _looked_up(literal)
    entry = Path(_real(literal.parent)) / literal.name
    return entry if literal.name != ".." and entry.is_symlink() else resolved


def typed_path(text: str | os.PathLike[str]) -> Path:
    """Return the path that a person typed, with ``~`` expanded; that of a user who does not exist
    stays as it is, and names nothing.
    """
    return Path(os.path.expanduser(text))  # `Path.expanduser` raises there


def is_file(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path leads to a file; a name too long for the disk leads to none."""
    return os.path.isfile(path)  # `Path.is_file` raises there


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path leads to a folder; a name too long for the disk leads to none."""
    return os.path.isdir(path)  # `Path.is_dir` raises there


def literal_path(path: str, cwd: Path) -> Path:
    """Return `path` as an absolute path, with ``~`` expanded and no symlink resolved.

    Raises:
        RespondToModel: `path` is empty or not a possible file name.
    """
    if not isinstance(path, (str, os.PathLike)):  # in a call by hand
        raise RespondToModel(f"{path!r} is no path; give a text or a Path.")
    path = os.fspath(path)
    if not path:
        raise RespondToModel(
            'The path is empty; give a file or folder, such as "." or "src/app.py".'
        )
    if "\0" in path:
        raise RespondToModel(f"The path {path!r} holds a NUL character, which no file name has.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise RespondToModel(
            f"The path {path!r} holds a character no file name can have."
        ) from None
    return Path(os.path.abspath(cwd), os.path.expanduser(path))


def shown_path(path: str | Path, cwd: Path) -> str:
    """Return `path` for display: relative to `cwd` where it is inside, and on one line.

    Unprintable characters (line breaks, escapes, undecodable bytes) are escaped, so that a file's
    name cannot be mistaken for a line of our own output.
    """
    return shown_below(Path(path), _real(cwd))


def shown_below(path: Path, folder: str | Path) -> str:
    """Return `path` as `shown_path` does, relative to a folder that is known to hold no link."""
    text, inside = str(path), os.path.join(folder, "")  # with "/" at its end
    return printable("." if text in (inside, inside[:-1]) else text.removeprefix(inside))


def diff_name(side: str, name: str) -> str:
    """Return a path as a diff names it: ``a/name`` or ``b/name``, or whole where it is absolute."""
    return name if Path(name).is_absolute() else f"{side}/{name}"


def printable(name: str) -> str:
    """Return `name` with every unprintable character escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def is_denied_read(path: Path, roots: Sequence[Path] = ()) -> str:
    """Return why reading `path` is denied to the model, or "" when it is allowed.

    Both the text of `path` and its resolved target are checked.

    Args:
        path: an absolute path; it need not exist.
        roots: the workspace's folders; hard links to protected files in them are denied too.

    Returns:
        The reason in a few words, such as "SSH keys".
    """
    real, text = _real(path), os.path.normpath(path)
    judge = read_judge(roots)
    return judge(real) or ("" if real == text else judge(text))


def is_second_name(status: os.stat_result, roots: Sequence[Path]) -> bool:
    """Tell whether a file is a hard link to a protected file.

    Args:
        status: the file's status.
        roots: the workspace's folders; protected files in them count beside the machine's.
    """
    return second_name_judge(roots)(status)


def second_name_judge(roots: Sequence[Path]) -> Callable[[os.stat_result], bool]:
    """Return a function that judges as `is_second_name` does, and lists the secrets once.

    In an environment whose packages are hard links every file asks, so the lists are shared for
    a moment.
    """

    @cache
    def inodes() -> Inodes:
        found = survey(tuple(map(_real, roots)), read_judge(), age=_SHARED_FOR)
        return secret_inodes() | inodes_of(found.secrets)

    def is_second(status: os.stat_result) -> bool:
        has_several = status.st_nlink > 1 and stat.S_ISREG(status.st_mode)
        return has_several and (status.st_dev, status.st_ino) in inodes()

    return is_second


def read_judge(roots: Sequence[Path] | None = None) -> Callable[[str], str]:
    """Return a function that judges one symlink-free path as `is_denied_read` does, for walking
    trees.

    It reads the environment once, now, and not for every path.

    Args:
        roots: the workspace's folders; None judges by the path's text alone.
    """
    moved = moved_places()

    def judge(path: str) -> str:
        folded = _folded(path)
        return (
            _protected_by_place(folded)
            or _protected_by_name(folded.rpartition("/")[2], path)
            or _protected_in_system(folded)
            or (_protected_elsewhere(path, moved) if moved else "")
        )

    if roots is None:
        return judge
    is_second = second_name_judge(roots)

    def judge_file(path: str) -> str:
        return judge(path) or _second_name_reason(path, is_second)

    return judge_file


def _second_name_reason(path: str, is_second: Callable[[os.stat_result], bool]) -> str:
    try:
        return "a second name of a protected file" if is_second(os.lstat(path)) else ""
    except OSError:
        return ""


def _protected_by_place(folded: str) -> str:
    found = _ANY_PLACE.search(f"{folded}/")
    return REASON_OF[found[1]] if found else ""


def _protected_by_name(name: str, path: str) -> str:
    if name == ".env" or (name.startswith(".env.") and not name.endswith(_HARMLESS_ENV_ENDINGS)):
        # A folder of that name is a virtual environment, not a file of secrets.
        return "" if os.path.isdir(path) else "a file of secrets (.env)"
    if name in _KEY_NAMES:
        return "SSH keys"
    if name.startswith(_KERNEL_FILE_STARTS) and name.endswith((".json", "-open.html")):
        return "Jupyter's keys and settings"
    return ""


def _protected_in_system(folded: str) -> str:
    """Protect /proc, /sys and /dev, except entries that describe the machine's capacity."""
    if not folded.startswith(_SYSTEM_FOLDERS) or folded.startswith(_HARMLESS_IN_SYSTEM):
        return ""
    first = folded.removeprefix("/proc/").partition("/")[0]
    if first.isdigit() or first in ("self", "thread-self"):
        return "the inside of a running process"
    return "a device or the inside of the system"


def _protected_elsewhere(path: str, moved: list[tuple[str, str]]) -> str:
    for place, meaning in moved:
        if path == place or path.startswith(f"{place}/"):
            if not meaning.startswith("/"):
                return meaning
            if reason := _protected_by_place(_folded(meaning + path[len(place) + 1 :])):
                return reason
    return ""


def _folded(text: str) -> str:
    """Return `text` as a case-insensitive file system compares it: casefolded, without invisible
    characters.
    """
    if text.isascii():
        return text.lower()
    composed = unicodedata.normalize("NFC", text)
    return "".join(c for c in composed if unicodedata.category(c) != "Cf").casefold()


def write_kind(
    path: Path, roots: Sequence[Path], read_only: bool, *, follow: bool = True
) -> tuple[bool, str]:
    """Tell whether `path` may be written by this run without approval.

    Args:
        path: an absolute path, preferably as it was written: both its own names and its target
            after resolving every symlink are judged. It need not exist.
        roots: the folders below which files may be written.
        read_only: whether nothing may be written at all.
        follow: whether a link at its end is followed; not where the link itself is removed.

    Returns:
        (allowed, reason); the reason is "" when it is allowed.
    """
    real = _real(path) if follow else os.path.join(_real(path.parent), path.name)
    if read_only:
        return False, "the sandbox is read-only"
    places = [place for place in map(_real, roots) if place != "/"]  # which is no workspace
    if not is_below(real, places):
        return False, "outside the workspace"
    for part in f"{_folded(real)}/{_folded(str(path))}".split("/"):
        if part in _NEVER_WRITTEN_BELOW:
            return False, f"protected: {_NEVER_WRITTEN_BELOW[part]}"
    for name, why in _NEVER_WRITTEN_BELOW.items():  # this name may be a link to another one
        named = (f"{place}/{name}" for place in places)
        if is_below(real, [_real(each) for each in named if os.path.islink(each)]):
            return False, f"protected: {why}"
    denied = is_denied_read(path, roots) or what_runs_later(real, places)
    return (False, f"protected: {denied}") if denied else (True, "")


def open_notebook() -> Path | None:
    """Return the path of this kernel's notebook, if Jupyter Server has set JPY_SESSION_NAME."""
    name = os.environ.get("JPY_SESSION_NAME", "")
    # An absolute path, or relative to the server's folder; a kernel runs beside its notebook.
    return (
        Path.cwd() / (name if os.path.isabs(name) else os.path.basename(name))
        if name.endswith(".ipynb")
        else None
    )


def nearest_names(path: Path, is_withheld: Callable[[str], bool] | None = None) -> list[str]:
    """Return up to three names beside `path` that are similar to its own, the most similar first.

    Args:
        path: absolute, without symlinks.
        is_withheld: tells whether a path may not be named.
    """
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES_COMPARED)]
    except OSError:
        return []
    by_folded: dict[str, str] = {}
    for name in sorted(names):
        by_folded.setdefault(_folded(name), name)
    # More than three, since some may be withheld.
    alike = difflib.get_close_matches(_folded(path.name), by_folded, n=20, cutoff=0.6)
    found = (by_folded[match] for match in alike)
    shown = (n for n in found if is_withheld is None or not is_withheld(str(path.parent / n)))
    return list(islice(shown, 3))
