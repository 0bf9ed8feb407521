"""Reads tracked files from a git repository: their recorded state, and their contents.

Law: nothing of the repository is run and nothing in it is written. Its index is parsed here; its
objects are read by ``git cat-file`` in an empty repository of ours that borrows them, so that its
configuration (hooks, fsmonitor, filters, a program for remote objects) is never used.
"""

import errno
import os
import re
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_magics.files.git.repositories import git_folders
from agent_magics.files.plain_files import read_plain, read_with_status

_ENTRY = struct.Struct(">10I20sH")
_NS = 1_000_000_000
_CAT_SECONDS = 30.0
_LONGEST_HEADER = 100  # bytes of the header before an object
_MOST_INDEX = 16 << 20  # bytes: some 150,000 files
_MOST_READ = 1 << 20  # bytes of a file of attributes or settings
_EXTENDED = 0x4000
_REGULAR = 0o100000
# Attributes and settings by which a file in the work tree differs from git's object.
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
    """A tracked file as recorded in git's index."""

    ctime: int
    mtime: int
    inode: int
    size: int
    object_id: str


@dataclass(slots=True)
class GitFiles:
    """The tracked files of a workspace, which need not be copied.

    Attributes:
        entries: by path relative to the workspace.
        objects: the repository's folder of objects.
        written: when the index was written, in ns; entries changed then or later are not trusted.
        git: path of the git program.
    """

    objects: str
    written: int
    git: str
    entries: dict[str, GitEntry] = field(default_factory=dict)

    def object_of(self, path: str, stamp: Sequence[int]) -> str:
        """Return the id of the object with exactly the current content of `path`, or ""."""
        entry = self.entries.get(path)
        if entry is None or len(stamp) != 5:
            return ""
        ctime, mtime, size, inode, _ = stamp
        same = (ctime, mtime, size & 0xFFFFFFFF, inode & 0xFFFFFFFF) == (
            *(entry.ctime, entry.mtime, entry.size, entry.inode),
        )
        return entry.object_id if same and mtime < self.written else ""

    def contents(self, sizes: Mapping[str, int]) -> dict[str, bytes]:
        """Return the bytes of objects; ids that git does not have are missing.

        Args:
            sizes: maximal bytes of each object, by its id; a larger one is truncated, and
                those after it are missing.
        """
        most = sum(sizes.values()) + len(sizes) * _LONGEST_HEADER
        try:
            with tempfile.TemporaryDirectory(prefix="agent-magics-") as folder:
                self._borrow(folder, sizes)
                return _read_batch(self._cat(folder, most))
        except OSError:  # such as a full disk
            return {}

    def _borrow(self, folder: str, wanted: Iterable[str]) -> None:
        """Make the empty repository that borrows the objects, and the list of wanted ones."""
        for name in ("objects/info", "refs"):
            os.makedirs(f"{folder}/{name}")
        for name, text in (
            ("HEAD", "ref: refs/heads/none\n"),
            ("objects/info/alternates", f"{self.objects}\n"),
            ("wanted", "".join(f"{each}\n" for each in wanted)),
        ):
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(text)

    def _cat(self, folder: str, most: int) -> bytes:
        """Return git's output for the wanted objects, up to `most` bytes."""
        env = {
            "PATH": os.defpath,
            "HOME": folder,
            "GIT_DIR": folder,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        with open(f"{folder}/wanted", "rb") as wanted:
            git = subprocess.Popen(
                [self.git, "cat-file", "--batch"],
                stdin=wanted,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd="/",
                start_new_session=True,  # not interrupted by Jupyter
            )
        # An object may be a pipe, or unpack to more than memory holds.
        watch = threading.Timer(_CAT_SECONDS, git.kill)
        watch.start()
        with git:
            try:
                assert git.stdout is not None  # it was started with a pipe
                return git.stdout.read(most)
            finally:
                watch.cancel()
                git.kill()


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
    """Return the files that git tracks below `root`; None where objects cannot replace copies.

    That is the case without a repository or git, with an unsupported form of index, or with
    attributes by which stored objects differ from the files in the work tree.
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
        index, status = read_with_status(f"{folder}/index", _MOST_INDEX)
        written, entries = status.st_mtime_ns, _read_index(index)
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
    """Return a value that changes whenever the index of the repository around `root` does."""
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
    """Return the folder of the index and that of the objects, which differ for worktrees.

    Raises:
        OSError: there is none.
    """
    folders = git_folders(f"{top}/.git")
    if not folders:
        raise FileNotFoundError(errno.ENOENT, "it names no repository", top)
    return folders[0], folders[-1]


def _find_git(root: str) -> str:
    """Return the path of the git program, excluding those below the workspace."""
    folders = [
        folder
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if os.path.isabs(folder) and not f"{os.path.realpath(folder)}/".startswith(f"{root}/")
    ]
    return shutil.which("git", path=os.pathsep.join(folders)) or ""


def _read_index(data: bytes) -> dict[str, GitEntry] | None:
    """Parse an index of version 2 or 3 (gitformat-index(5)); None for another format."""
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
    # A split or a sparse index does not list all files; a SHA-256 index has another trailer.
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
        return bool(pattern.search(read_plain(path, _MOST_READ, links=True)))
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it may match
