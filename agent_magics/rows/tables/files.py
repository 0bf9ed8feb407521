"""Reads rows of Parquet, CSV and JSONL files: by path, folder, glob, or by URL with fsspec."""

import bz2
import csv
import errno
import glob
import gzip
import io
import itertools
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path, PurePath
from typing import IO, Any, AnyStr, NamedTuple, TypeAlias

from agent_magics.files.beneath import real_path
from agent_magics.files.paths import is_folder, typed_path
from agent_magics.files.plain_files import open_plain
from agent_magics.protocol.errors import FatalError, clause, short_message, typed_message

BATCH = 500
_MOST_IN_LINE = 64 << 20  # bytes or characters; a file may be one line of any length


class Broken(NamedTuple):
    """A line that holds no row; `problem` says why."""

    problem: str


Rows: TypeAlias = Iterator[dict[str, Any] | Broken]
FileJudge: TypeAlias = Callable[[str], str]

NO_FORMAT = (
    "{path}: map reads .parquet, .csv, .tsv, .jsonl and .ndjson files (also with .gz, .bz2 or .xz "
    "after that) and folders of them, and no others."
)
MORE = "its line has more values than there are columns: a value with {delimiter!r} needs quotes"
TWICE = "more than one column is called {name!r}"
NO_CSV = (
    "the row in line {line} is no CSV ({error}): a quote inside of quotes has to stand twice; mend "
    "it, or read the file with pandas and give the table"
)
NOT_UTF8 = "the names of its columns are not UTF-8 text ({name!r})"
NO_FILE = "There is no file {path}."
_CLOSED = (
    "{path} cannot be read: you may not look into it, and its rows would be missing unseen. Name "
    "what you may read in rows=, or have its mode changed."
)
NEEDS = "Reading {path} needs the package {package}: pip install {package}."


# In `zip://a.csv::simplecache::s3://b/c.zip` what may stand before the last part, which alone says
# where the bytes come from. Others name files of their own, such as `dir` (through links) and
# `reference` (in a list), which may be of this machine.
_AROUND = frozenset(
    ("simplecache", "filecache", "blockcache", "cached", "zip", "tar", "libarchive")
)
_UNJUDGED = frozenset(
    ("dir", "reference", "generic", "dask", "git", "dvc", "jlab", "jupyter", "asynclocal")
)


def any_path(path: str) -> str:
    """Allow every file (a judge)."""
    return ""


def judged_path(path: str, judge: FileJudge) -> str:
    """Return the file that a path names, with every link resolved.

    Raises:
        PermissionError: it may not be read; `strerror` says why.
    """
    real = real_path(path)
    if reason := judge(real):
        raise PermissionError(errno.EACCES, reason, path)
    return real


def file_rows(pattern: str, judge: FileJudge = any_path) -> Rows:
    """Read the rows of all files that a path or glob names, in the order of their names.

    Args:
        pattern: a path or glob of this machine, or a URL such as ``s3://bucket/*.parquet``. A
            folder stands for all files of known formats in it, but for those whose names begin
            with "." or "_".
        judge: returns why a file of this machine is not read, or "".

    Raises:
        FatalError: there is no such file, its format is not known, or it cannot be read.
    """
    # These go to our own reader, which does not wait for the writer of a FIFO.
    place = pattern.removeprefix("file://").removeprefix("local://")
    files = _by_url(place, judge) if "://" in place else _local(place, judge)
    readers = [(path, opened, _reader_of(path)) for path, opened in files]
    return itertools.chain.from_iterable(
        _read(path, opened, reader) for path, opened, reader in readers
    )


_Opened: TypeAlias = Callable[[], AbstractContextManager[Any]]


def _local(pattern: str, judge: FileJudge) -> list[tuple[str, _Opened]]:
    if not pattern:
        raise FatalError("rows='': an empty path names no files.")
    pattern = str(typed_path(pattern))
    found = [pattern]
    if not os.path.lexists(pattern):  # a name may hold "["
        _check_folders(pattern)
        # `Path.glob` takes no absolute pattern.
        found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
    if not found:
        raise FatalError(NO_FILE.format(path=pattern))
    # "**" finds a folder and what is in it: each file is read once.
    paths = dict.fromkeys(itertools.chain.from_iterable(map(_files_of, found)))
    # Files are opened one after the other, and the process may go elsewhere meanwhile.
    return [(path, partial(_open, str(Path(path).absolute()), judge)) for path in paths]


def _files_of(path: str) -> list[str]:
    """Return the files of a folder; a file itself."""
    # The methods of `Path` raise where a name is too long or a folder may not be looked into.
    if not is_folder(path):
        return [path]
    return _of_folder(path, _below(path))


def _below(folder: str) -> Iterator[str]:
    """Yield the regular files below a folder, but for those of hidden folders."""
    _check_open(folder)
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hidden(name, "")]
        for deeper in (Path(place, name) for name in folders):
            if not deeper.is_symlink():
                _check_open(str(deeper))
        yield from (str(path) for path in (Path(place, name) for name in names) if path.is_file())


def _check_folders(pattern: str) -> None:
    """Check the folders in which the names of a glob are looked for."""
    parts = pattern.split("/")
    for number, part in enumerate(parts):
        if glob.has_magic(part):
            above = "/".join([*parts[:number], ""])
            folders = f"{above}**/" if part == "**" else above
            for folder in glob.iglob(folders, recursive=True):  # noqa: PTH207
                _check_open(folder or ".")


def _check_open(folder: str) -> None:
    """Check that a folder may be looked into: what globs and walks find leaves others out unseen.

    Raises:
        FatalError: it may not.
    """
    if not os.access(folder, os.R_OK | os.X_OK):
        raise FatalError(_CLOSED.format(path=folder))


@contextmanager
def _open(path: str, judge: FileJudge) -> Iterator[IO[bytes]]:
    """Open a regular file, unpacked; a FIFO that a command put beside the files would block."""
    unpack = _COMPRESSED.get(PurePath(path).suffix.lower(), nullcontext)
    opened = open_plain(judged_path(path, judge))
    with os.fdopen(opened, "rb") as file, unpack(file) as unpacked:
        yield unpacked


def _by_url(pattern: str, judge: FileJudge) -> list[tuple[str, _Opened]]:
    try:
        import fsspec  # noqa: PLC0415 - an extra, for who reads from elsewhere
    except ModuleNotFoundError:
        raise FatalError(NEEDS.format(path=pattern, package="fsspec")) from None
    *around, last = pattern.split("::")
    schemes = {each.partition("://")[0] for each in around}
    try:
        scheme, origin = fsspec.core.split_protocol(last)
        if unknown := sorted(schemes - _AROUND | {scheme} & _UNJUDGED):
            raise PermissionError(errno.EACCES, f"map follows no {unknown[0]}:// to other files")
        if scheme in (None, "file", "local"):
            for path, _ in _local(origin, judge):
                judged_path(path, judge)
        if _format_of(pattern) is None or pattern.endswith("/"):
            system, folder = fsspec.url_to_fs(pattern)
            if system.isdir(folder):
                found = system.find(folder, detail=True)
                files = [path for path, about in found.items() if about["type"] == "file"]
                # A path alone names neither its host nor the archive around it, and may hold "[".
                read = partial(system.open, mode="rb", compression="infer")
                return [(path, partial(read, path)) for path in _of_folder(folder, files)]
        opened = fsspec.open_files(pattern, "rb", compression="infer")
    except (ImportError, OSError, ValueError) as error:
        raise FatalError(f"{pattern} cannot be read: {typed_message(error)}") from None
    if not opened:
        raise FatalError(NO_FILE.format(path=pattern))
    return [(each.path, lambda each=each: each) for each in opened]  # type: ignore[misc]


def _of_folder(folder: str, paths: Iterable[str]) -> list[str]:
    """Return the paths below a folder that hold rows, in order.

    Raises:
        FatalError: there is none.
    """
    found = [path for path in sorted(paths) if _format_of(path) and not _is_hidden(path, folder)]
    if not found:
        raise FatalError(NO_FORMAT.format(path=folder))
    return found


def _is_hidden(path: str, folder: str) -> bool:
    return any(name.startswith((".", "_")) for name in PurePath(path).relative_to(folder).parts)


def _read(path: str, opened: _Opened, reader: Callable[[IO[bytes]], Rows]) -> Rows:
    try:
        with opened() as file:
            yield from reader(file)
    except FileNotFoundError:
        raise FatalError(NO_FILE.format(path=path)) from None
    except ModuleNotFoundError as error:
        raise FatalError(NEEDS.format(path=path, package=error.name)) from None
    except FatalError:
        raise
    except (OSError, ValueError, EOFError, csv.Error, lzma.LZMAError, zlib.error) as error:
        raise FatalError(f"{path} cannot be read: {typed_message(error)}") from None


def _reader_of(path: str) -> Callable[[IO[bytes]], Rows]:
    reader = _format_of(path)
    if reader is None:
        raise FatalError(NO_FORMAT.format(path=path))
    return reader


def names_files(text: str) -> bool:
    """Return whether a text is the path, glob or URL of files that can be read, or a folder's."""
    return text.endswith("/") or _format_of(text) is not None


def _format_of(path: str) -> Callable[[IO[bytes]], Rows] | None:
    """Return what reads a file of this name; None for another kind of file."""
    name = PurePath(path.lower())
    return _READERS.get(PurePath(name.stem).suffix if name.suffix in _COMPRESSED else name.suffix)


def _read_parquet(file: IO[bytes]) -> Rows:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - heavy, and an extra

    rows = ParquetFile(file)
    _check_names(rows.schema_arrow.names)
    return itertools.chain.from_iterable(map(rows_of_arrow, rows.iter_batches(batch_size=BATCH)))


def rows_of_arrow(batch: Any) -> list[dict[str, Any] | Broken]:
    """Return the rows of an Arrow batch; one with a value that cannot be read is `Broken`."""
    try:
        rows: list[dict[str, Any] | Broken] = batch.to_pylist()
    except (ValueError, OverflowError, TypeError) as error:  # pyarrow's own errors are of these
        if batch.num_rows == 1:
            return [Broken(typed_message(error))]
        half = batch.num_rows // 2
        return rows_of_arrow(batch.slice(0, half)) + rows_of_arrow(batch.slice(half))
    return rows


def _read_csv(file: IO[bytes], delimiter: str = ",") -> Rows:
    # A cell may be as long as a prompt; the default is 128 KB.
    csv.field_size_limit(max(csv.field_size_limit(), _MOST_IN_LINE))
    # Bytes that are not UTF-8 are the error of their row: see `prompts.check_text`.
    with io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline="") as text:
        # Else a quote that nothing ends takes in all rows after it, and others vanish from values.
        lines = csv.DictReader(_lines(text), delimiter=delimiter, strict=True)
        try:
            _check_names(lines.fieldnames or ())
            for row in lines:
                yield _row_of_csv(row, delimiter)
        except csv.Error as error:
            raise ValueError(NO_CSV.format(line=lines.line_num + 1, error=clause(error))) from None


def _row_of_csv(row: Mapping[str | Any, str | Any], delimiter: str) -> dict[str, Any] | Broken:
    """Return a row's values; an empty field is a missing value, as in pandas."""
    if any(row.get(None, ())):
        return Broken(MORE.format(delimiter=delimiter))
    return {name: value or None for name, value in row.items() if name}


def _check_names(names: Sequence[str]) -> None:
    seen = set[str]()
    for name in filter(None, names):
        if name in seen:
            raise ValueError(TWICE.format(name=name))
        if not name.isascii() and "\udc80" <= max(name) <= "\udcff":
            raise ValueError(NOT_UTF8.format(name=name))
        seen.add(name)


def _read_jsonl(file: IO[bytes]) -> Rows:
    lines = enumerate(_lines(file), 1)
    return (_parse_line(number, line) for number, line in lines if line.strip())


def _lines(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """Yield a file's lines.

    Raises:
        ValueError: one is too long.
    """
    while line := file.readline(_MOST_IN_LINE + 1):
        if len(line) > _MOST_IN_LINE:
            raise ValueError(f"one of its lines has more than {_MOST_IN_LINE >> 20} MB")
        yield line


def _parse_line(number: int, line: bytes) -> dict[str, object] | Broken:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Broken(f"line {number} of the file is no JSON ({short_message(error)})")
    return row if isinstance(row, dict) else {"text": row}


_READERS: dict[str, Callable[[IO[bytes]], Rows]] = {
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".csv": _read_csv,
    ".tsv": partial(_read_csv, delimiter="\t"),
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
}
_COMPRESSED: dict[str, Callable[[IO[bytes]], AbstractContextManager[Any]]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
