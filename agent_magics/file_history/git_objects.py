"""A git repository as a store that is only read: what is as git knows it, and its bytes.

Law: nothing of the repository runs and nothing in it is written. Its index is read by us; its
objects by ``git cat-file`` in an empty repository of ours that borrows them, so that its
configuration (hooks, fsmonitor, filters, a program for remote objects) is never looked at.
"""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

_ENTRY = struct.Struct(">10I20sH")
_NS = 1_000_000_000
_CAT_SECONDS = 30.0
_MOST_READ = 1 << 20  # bytes of a file of attributes or settings
_EXTENDED = 0x4000
_REGULAR = 0o100000
# What makes a file in the folder another one than git stores, in attributes and configuration.
_CONVERTS = re.compile(
    rb"(?m)^[^#\n]*\s(?:filter=|ident\b|working-tree-encoding=|text\b|eol=|crlf\b)"
)
_CONVERTS_ALL = re.compile(
    rb"(?im)^[^#;\n]*(?:\bautocrlf\s*(?:$|=(?!\s*false))|\battributesfile\b|\[include)"
)
_ATTRIBUTES = ("~/.config/git/attributes", "/etc/gitattributes")
_SETTINGS = ("~/.gitconfig", "~/.config/git/config", "/etc/gitconfig")


@dataclass(frozen=True, slots=True)
class GitEntry:
    """A tracked file as it was when git last looked at it."""

    ctime: int
    mtime: int
    inode: int
    size: int
    object_id: str


@dataclass(slots=True)
class GitFiles:
    """The tracked files of a workspace that need not be copied.

    Attributes:
        entries: by path below the workspace.
        objects: the repository's folder of objects.
        written: when the index was written, in ns; what changed then or later is not trusted.
        git: the program.
    """

    objects: str
    written: int
    git: str
    entries: dict[str, GitEntry] = field(default_factory=dict)

    def object_of(self, path: str, stamp: Sequence[int]) -> str:
        """Return the id of the object that holds exactly what `path` holds now, or ""."""
        entry = self.entries.get(path)
        if entry is None or len(stamp) != 5:
            return ""
        ctime, mtime, size, inode, _ = stamp
        same = (ctime, mtime, size & 0xFFFFFFFF, inode & 0xFFFFFFFF) == (
            *(entry.ctime, entry.mtime, entry.size, entry.inode),
        )
        return entry.object_id if same and mtime < self.written else ""

    def contents(self, object_ids: Sequence[str]) -> dict[str, bytes]:
        """Return objects' bytes; one that git does not have is missing."""
        with tempfile.TemporaryDirectory(prefix="agent-magics-") as folder:
            for name in ("objects/info", "refs"):
                os.makedirs(f"{folder}/{name}")
            for name, text in (
                ("HEAD", "ref: refs/heads/none\n"),
                ("objects/info/alternates", f"{self.objects}\n"),
            ):
                with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                    file.write(text)
            return self._cat(folder, object_ids)

    def _cat(self, folder: str, object_ids: Sequence[str]) -> dict[str, bytes]:
        env = {
            "PATH": os.defpath,
            "HOME": folder,
            "GIT_DIR": folder,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        try:
            done = subprocess.run(
                [self.git, "cat-file", "--batch"],
                input="".join(f"{each}\n" for each in object_ids).encode(),
                capture_output=True,
                env=env,
                cwd="/",
                timeout=_CAT_SECONDS,
                start_new_session=True,  # Jupyter's interrupt goes to our group
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return {}
        return _read_batch(done.stdout)


def _read_batch(data: bytes) -> dict[str, bytes]:
    found, at = {}, 0
    while (end := data.find(b"\n", at)) >= 0:
        words = data[at:end].split()
        at = end + 1
        if len(words) != 3 or words[1] != b"blob":
            continue
        size = int(words[2])
        found[words[0].decode()] = data[at : at + size]
        at += size + 1
    return found


def read_git(root: str) -> GitFiles | None:
    """Return what git tracks below `root`; None where it cannot stand for copies.

    That is where there is no repository, no git, a form of index that is not read here, or
    attributes by which files are stored otherwise than they stand in the folder.
    """
    top = _top_of(root)
    git = _find_git(root)
    if not top or not git:
        return None
    try:
        folder, common = _folders_of(top)
        objects = f"{common}/objects"
        if "\n" in objects or objects.startswith(('"', "#")) or not os.path.isdir(objects):
            return None
        with open(f"{folder}/index", "rb") as file:
            written = os.fstat(file.fileno()).st_mtime_ns
            entries = _read_index(file.read())
        if entries is None or _converts(top, common, entries):
            return None
    except (OSError, ValueError, struct.error, IndexError):
        return None
    prefix = "" if top == root else f"{os.path.relpath(root, top)}/"
    below = {
        path[len(prefix) :]: entry for path, entry in entries.items() if path.startswith(prefix)
    }
    return GitFiles(objects, written, git, below)


def index_stamp(root: str) -> tuple[int, int]:
    """Return what changes whenever the index of the repository around `root` does."""
    try:
        status = os.stat(f"{_folders_of(_top_of(root))[0]}/index")
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_ino


def _top_of(root: str) -> str:
    while not os.path.lexists(f"{root}/.git"):
        root, below = os.path.dirname(root), root
        if root == below:
            return ""
    return root


def _folders_of(top: str) -> tuple[str, str]:
    """Return the folder of the index and that of the objects; worktrees have two."""
    folder = f"{top}/.git"
    if os.path.isfile(folder):
        with open(folder, encoding="utf-8") as file:
            named = file.readline().removeprefix("gitdir:").strip()
        folder = os.path.realpath(os.path.join(top, named))
    common = folder
    if os.path.isfile(f"{folder}/commondir"):
        with open(f"{folder}/commondir", encoding="utf-8") as file:
            common = os.path.realpath(os.path.join(folder, file.readline().strip()))
    return folder, common


def _find_git(root: str) -> str:
    """Return the path of git, never one below the workspace."""
    folders = [
        folder
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(folder) and not f"{os.path.realpath(folder)}/".startswith(f"{root}/")
    ]
    return shutil.which("git", path=os.pathsep.join(folders)) or ""


def _read_index(data: bytes) -> dict[str, GitEntry] | None:
    """Read an index of version 2 or 3 (gitformat-index(5)); None where it is of another kind."""
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3):
        return None
    entries: dict[str, GitEntry] = {}
    at, unpack = 12, _ENTRY.unpack_from
    for _ in range(count):
        fields = unpack(data, at)
        flags = fields[11]
        name_at = at + _ENTRY.size + (2 if flags & _EXTENDED else 0)
        end = data.index(b"\0", name_at)
        if fields[6] & 0o170000 == _REGULAR and not flags & 0x3000:
            entries[os.fsdecode(data[name_at:end])] = GitEntry(
                fields[0] * _NS + fields[1],
                fields[2] * _NS + fields[3],
                fields[5],
                fields[9],
                fields[10].hex(),
            )
        # Entries are padded to eight bytes, by one NUL at least.
        at += (end - at) // 8 * 8 + 8
    # A split or a sparse index does not name all that is tracked; SHA-256 does not end like this.
    while at < len(data) - 20:
        name, size = struct.unpack_from(">4sI", data, at)
        if name in (b"link", b"sdir"):
            return None
        at += 8 + size
    return entries if at == len(data) - 20 else None


def _converts(top: str, common: str, entries: dict[str, GitEntry]) -> bool:
    named = [path for path in entries if path.rpartition("/")[2] == ".gitattributes"]
    files = [f"{common}/info/attributes", *map(os.path.expanduser, _ATTRIBUTES)]
    files += [f"{top}/{path}" for path in {".gitattributes", *named}]
    settings = [f"{common}/config", *map(os.path.expanduser, _SETTINGS)]
    return any(_says(path, _CONVERTS) for path in files) or any(
        _says(path, _CONVERTS_ALL) for path in settings
    )


def _says(path: str, pattern: re.Pattern[bytes]) -> bool:
    try:
        with open(path, "rb") as file:
            return bool(pattern.search(file.read(_MOST_READ)))
    except OSError:
        return False
