"""Keeps the Parquet files of a map's answers: in a folder, or at a URL, by fsspec.

Law: no link is followed and no FIFO opened in the folder, since a command may have made them.
"""

import errno
import io
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from agent_magics.files.locks import held_while
from agent_magics.files.paths import typed_path
from agent_magics.protocol.errors import FatalError, typed_message
from agent_magics.rows.tables.columns import ERROR
from agent_magics.rows.tables.files import NEEDS
from agent_magics.rows.tables.frames import KINDS

# Seconds after which nobody writes a file any more: a killed kernel has left it.
UNUSED = 3600
HELD = "into={place!r}: another map writes there now. Wait for its end, or choose another folder."
_PART = re.compile(r"part-(\d+)\.parquet\Z", re.ASCII)


class PartFiles:
    """The numbered Parquet files of one map.

    Args:
        place: a folder, which is made where it is missing, or a URL such as ``s3://bucket/out``.

    Attributes:
        place: the same, as text.

    Raises:
        FatalError: a package is missing that the URL needs.
        OSError: it cannot be used; so do all methods.
    """

    def __init__(self, place: str | Path) -> None:
        self.place = str(place)
        self._remote: Any = None
        if "://" in self.place:
            self._remote, self._folder = _file_system(self.place)
            return
        folder = typed_path(place).absolute()  # wherever the process goes
        folder.mkdir(parents=True, exist_ok=True)
        self.place = self._folder = str(folder)
        for beside in folder.glob("part-*.part"):
            with suppress(OSError):  # another kernel was faster, or it may not be removed
                if beside.lstat().st_mtime < time.time() - UNUSED:
                    beside.unlink()

    def paths(self) -> list[str]:
        """Return the files that are there, in order."""
        if self._remote is None:
            # Not a glob, which finds nothing where the folder may not be looked into.
            entries = Path(self._folder).iterdir()
            return _regular(str(path) for path in entries if _PART.fullmatch(path.name))
        found: list[str] = []
        with _told(), suppress(FileNotFoundError):  # the first file makes the folder
            self._remote.invalidate_cache()
            # Not a glob, of which the folder's own name may be a part.
            found = self._remote.ls(self._folder, detail=False)
        return sorted(path for path in found if _PART.fullmatch(path.rpartition("/")[2]))

    def paths_of(self, numbers: Set[int]) -> list[str]:
        """Return the files of these numbers that are there, in order."""
        return [path for path in self.paths() if _number(path) in numbers]

    def answers(self, number: int) -> set[int]:
        """Return a digest of each answered row of a file; none where there is no map's file."""
        with _told():
            try:
                return answers_of(self._table([self.path_of(number)], None))
            except (ValueError, FileNotFoundError):
                return set()

    def set_aside(self, path: str) -> str:
        """Move a file into FOLDER.earlier, and return where it is.

        In the folder itself it would be read with the others, or be in the way of who reads them.
        """
        beside = f"{self._folder.rstrip('/')}.earlier"
        aside = f"{beside}/{Path(path).stem}.{time.time_ns()}.parquet"
        with _told():
            if self._remote is None:
                Path(beside).mkdir(exist_ok=True)
                Path(path).rename(aside)
            else:
                self._remote.makedirs(beside, exist_ok=True)
                self._remote.mv(path, aside)
        return aside

    def reserved(self) -> AbstractContextManager[None]:
        """Keep other maps of this machine out of the folder; a URL has no locks.

        Raises:
            FatalError: another one writes there.
        """
        own = Path(self._folder, ".agent-map")
        refusal = HELD.format(place=self.place)
        return held_while(own, refusal) if self._remote is None else nullcontext()

    def path_of(self, number: int) -> str:
        """Return the name of a file."""
        return f"{self._folder}/part-{number:05}.parquet"

    def metadata(self, path: str) -> Mapping[bytes, bytes]:
        """Return a file's metadata; none where it is no Parquet."""
        from pyarrow.parquet import read_schema  # noqa: PLC0415 - heavy, and an extra

        with _told():
            try:
                return read_schema(path, filesystem=self._remote).metadata or {}
            except ValueError:  # pyarrow's errors of what is no Parquet
                return {}

    def read(self, paths: Sequence[str], columns: list[str] | None = None) -> Any:
        """Return some files as one pyarrow table, of all columns or of these."""
        with _told():
            return self._table(paths, columns)

    def _table(self, paths: Sequence[str], columns: list[str] | None) -> Any:
        import pyarrow.parquet as pq  # noqa: PLC0415 - heavy, and an extra

        if self._remote is None:
            paths = _regular(paths)
        # Names of folders such as "year=2024" are no columns.
        return pq.ParquetDataset(paths, filesystem=self._remote, partitioning=None).read(columns)

    def write(self, number: int, table: Any) -> None:
        """Write one file atomically."""
        import pyarrow.parquet as pq  # noqa: PLC0415 - heavy, and an extra

        if self._remote is not None:
            buffer = io.BytesIO()
            pq.write_table(table, buffer)
            with _told():
                self._remote.pipe_file(self.path_of(number), buffer.getvalue())
            return
        path = Path(self.path_of(number))
        # Of one name for each who writes: two kernels may.
        beside = path.with_suffix(f".{uuid.uuid4().hex}.part")
        made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        try:
            with os.fdopen(made, "wb") as file:
                pq.write_table(table, file)
            beside.replace(path)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise

    def above(self, last: int) -> list[str]:
        """Return the files of a higher number: an earlier map had more rows."""
        return [path for path in self.paths() if _number(path) > last]


def answers_of(table: Any) -> set[int]:
    """Return a digest of each answered row of a part: of its number and the answer's columns."""
    if ERROR not in table.column_names:
        return set()
    answered = table.filter(table[ERROR].is_null())
    names = [name for name in table.column_names if name not in KINDS]
    return set(map(hash, map(repr, answered.select(names).to_pylist())))


def _number(path: str) -> int:
    found = _PART.search(path)
    assert found is not None  # only such files are listed
    return int(found[1])


def _regular(paths: Iterable[str]) -> list[str]:
    """Return the names of files in order.

    Raises:
        OSError: one is no regular file.
    """
    found = sorted(paths)
    for path in map(Path, found):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise OSError(errno.EINVAL, f"{path.name} is no regular file")
    return found


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra, for who writes elsewhere

        with _told():
            system, folder = url_to_fs(url)
    except ModuleNotFoundError as error:
        package = error.name or "fsspec"
        raise FatalError(NEEDS.format(path=url, package=package)) from None
    return system, folder.rstrip("/")


@contextmanager
def _told() -> Iterator[None]:
    """Raise what a file system raises as OSError; each has exceptions of its own."""
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        raise OSError(errno.EIO, typed_message(error)) from None
