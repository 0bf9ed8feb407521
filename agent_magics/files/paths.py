"""Where a path really leads, and whether it may be read or written: the only judge of paths.

A path is judged by what it leads to, after every symlink, never by its text alone.
"""

import difflib
import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from agent_magics.backends.beneath import PathChanged, real_path
from agent_magics.backends.own_places import is_below, what_runs_later
from agent_magics.backends.secret_places import REASON_OF, is_second_name, moved_places
from agent_magics.protocol.errors import RespondToModel

_ANY_PLACE = re.compile(f"/({'|'.join(map(re.escape, REASON_OF))})/")
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


def resolve_path(path: str, cwd: Path) -> Path:
    """Return `path` as an absolute path with every symlink followed; it need not exist.

    Args:
        path: as a person or a model wrote it; ``~`` is expanded.
        cwd: where a relative path starts.

    Raises:
        RespondToModel: `path` is empty or no file can have that name.
    """
    return Path(_real(literal_path(path, cwd)))


def _real(path: str | os.PathLike[str]) -> str:
    try:
        return real_path(path)
    except PathChanged as error:
        raise RespondToModel(f"{path} {error.strerror}; call again when it is at rest.") from None


def literal_path(path: str, cwd: Path) -> Path:
    """Return `path` as an absolute path by its text alone: ``~`` expanded, no symlink followed.

    Raises:
        RespondToModel: `path` is empty or no file can have that name.
    """
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


def shown_path(path: Path, cwd: Path) -> str:
    """Return `path` for people and models: relative to `cwd` where it is inside, and one line.

    Characters that do not print (line breaks, escapes, undecodable bytes) are shown escaped, so
    that a file's name cannot pass for a line of ours.
    """
    base = Path(_real(cwd))
    return printable(str(path.relative_to(base) if path.is_relative_to(base) else path))


def printable(name: str) -> str:
    """Return `name` with every character that does not print shown as an escape."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def is_denied_read(path: Path) -> str:
    """Say why `path` is readable by nobody but the person, or return "" when it is not protected.

    Both the text of `path` and what it leads to are looked at.

    Args:
        path: an absolute path; it need not exist.

    Returns:
        The reason in a few words, such as "SSH keys".
    """
    judge = read_judge()
    real, text = _real(path), os.path.normpath(path)
    return judge(real) or ("" if real == text else judge(text)) or _second_name_reason(real)


def _second_name_reason(real: str) -> str:
    try:
        status = os.lstat(real)
    except OSError:
        return ""
    return "a second name of a protected file" if is_second_name(status) else ""


def read_judge() -> Callable[[str], str]:
    """Return what `is_denied_read` judges one symlink-free path with, for walking whole trees.

    The environment is looked at once, now, and not for every path.
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

    return judge


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
    """Protect what the system only shows as files, but for what tells how large the machine is."""
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
    """Return `text` as a case-folding file system sees it: no case, no invisible characters."""
    if text.isascii():
        return text.lower()
    composed = unicodedata.normalize("NFC", text)
    return "".join(c for c in composed if unicodedata.category(c) != "Cf").casefold()


def write_kind(path: Path, roots: Sequence[Path], read_only: bool) -> tuple[bool, str]:
    """Tell whether `path` may be written without leaving what the run was given.

    Args:
        path: an absolute path, best as it was written: both its own names and what it leads to,
            through every symlink, are judged. It need not exist.
        roots: the folders below which files may be written.
        read_only: whether nothing may be written at all.

    Returns:
        (allowed, why not); the reason is "" when it is allowed.
    """
    real = Path(_real(path))
    if read_only:
        return False, "the sandbox is read-only"
    if not is_below(str(real), [_real(root) for root in roots]):
        return False, "outside the workspace"
    for part in (*real.parts, *path.parts):
        if _folded(part) in _NEVER_WRITTEN_BELOW:
            return False, f"protected: {_NEVER_WRITTEN_BELOW[_folded(part)]}"
    for name, why in _NEVER_WRITTEN_BELOW.items():  # a link there may lead to another name
        if any(real.is_relative_to(_real(root / name)) for root in roots):
            return False, f"protected: {why}"
    denied = is_denied_read(path) or what_runs_later(str(real), list(map(_real, roots)))
    return (False, f"protected: {denied}") if denied else (True, "")


def open_notebook() -> Path | None:
    """Return the notebook that this kernel runs, where Jupyter Server has named it."""
    name = os.environ.get("JPY_SESSION_NAME", "")
    # An absolute path, or relative to the server's folder; a kernel runs beside its notebook.
    return (
        Path.cwd() / (name if os.path.isabs(name) else os.path.basename(name))
        if name.endswith(".ipynb")
        else None
    )


def nearest_names(path: Path) -> list[str]:
    """Return up to three names beside `path` that look like its own, the nearest first."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in islice(entries, _MOST_NAMES_COMPARED)]
    except OSError:
        return []
    by_folded: dict[str, str] = {}
    for name in sorted(names):
        by_folded.setdefault(_folded(name), name)
    alike = difflib.get_close_matches(_folded(path.name), by_folded, n=3, cutoff=0.6)
    return [by_folded[match] for match in alike]
