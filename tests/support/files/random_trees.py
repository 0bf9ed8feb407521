"""Makes random folders and edits, and reads a folder's entries for comparison."""

import os
import shutil
import stat
from pathlib import Path

from hypothesis import strategies as st

NAMES = ("a", "b", "c.txt", "ä b")
MODES = (0o644, 0o600, 0o755)
CONTENTS = st.sampled_from([b"", b"one\n", b"one\ntwo\n", b"\xff\0binary", b"no end"])
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
EDITS = st.one_of(
    st.tuples(st.just("write"), PATHS, CONTENTS),
    st.tuples(st.just("append"), PATHS, CONTENTS),
    st.tuples(st.just("remove"), PATHS, st.just(b"")),
    st.tuples(st.just("folder"), PATHS, st.just(b"")),
    st.tuples(st.just("link"), PATHS, st.sampled_from([b"a", b"../out", b"nowhere"])),
    st.tuples(st.just("mode"), PATHS, st.sampled_from([b"600", b"755", b"644"])),
    st.tuples(st.just("move"), PATHS, PATHS.map(os.fsencode)),
)


def edit(root: Path, what: str, name: str, more: bytes) -> None:
    """Apply one edit; one that is not possible here does nothing."""
    path = root / name
    try:
        {
            "write": _write,
            "append": _append,
            "remove": _remove,
            "folder": lambda path, more: path.mkdir(parents=True),
            "link": lambda path, more: path.symlink_to(os.fsdecode(more)),
            "mode": _set_mode,
            "move": lambda path, more: path.rename(root / os.fsdecode(more)),
        }[what](path, more)
    except OSError:
        return


def _write(path: Path, content: bytes) -> None:
    if path.is_symlink() or path.is_dir():
        _remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _append(path: Path, content: bytes) -> None:
    if path.is_file() and not path.is_symlink():
        with path.open("ab") as file:
            file.write(content)


def _remove(path: Path, _: bytes = b"") -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _set_mode(path: Path, mode: bytes) -> None:
    if path.is_symlink() or (path.is_dir() and mode != b"755"):  # else nothing is read there
        return
    path.chmod(int(mode, 8))


def tree_of(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """Return the entries below `root`: kind, mode and content."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            if path.is_symlink():
                entry = ("link", 0, os.fsencode(path.readlink()))
            elif path.is_dir():
                entry = ("folder", mode, b"")
            else:
                entry = ("file", mode, path.read_bytes())
            found[str(path.relative_to(root))] = entry
    return found
