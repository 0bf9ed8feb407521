"""Reads rows of Parquet, CSV and JSONL files: by path, by glob, or by URL with fsspec."""

import csv
import glob
import io
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path, PurePath
from typing import IO, Any, NamedTuple, TypeAlias

from agent_magics.protocol.errors import FatalError, error_text

BATCH = 500


class Broken(NamedTuple):
    """A line that holds no row; `problem` says why."""

    problem: str


Rows: TypeAlias = Iterator[list[dict[str, Any] | Broken]]

NO_FORMAT = "{path}: map reads .parquet, .csv, .jsonl and .ndjson files, and no others."
NO_FILE = "There is no file {path}."
NEEDS = "Reading {path} needs the package {package}: pip install {package}."


def file_batches(pattern: str) -> Rows:
    """Read the rows of all files that a path or glob names, in the order of their names.

    Args:
        pattern: a path or glob of this machine, or a URL such as ``s3://bucket/*.parquet``.

    Raises:
        FatalError: there is no such file, its format is not known, or it cannot be read.
    """
    files = _by_url(pattern) if "://" in pattern else _local(pattern)
    readers = [(path, opened, _reader_of(path)) for path, opened in files]
    return itertools.chain.from_iterable(
        _read(path, opened, reader) for path, opened, reader in readers
    )


_Opened: TypeAlias = Callable[[], AbstractContextManager[Any]]


def _local(pattern: str) -> list[tuple[str, _Opened]]:
    pattern = str(Path(pattern).expanduser())
    # `Path.glob` takes no absolute pattern.
    paths = sorted(glob.glob(pattern, recursive=True)) or [pattern]  # noqa: PTH207
    return [(path, partial(Path(path).open, "rb")) for path in paths]


def _by_url(pattern: str) -> list[tuple[str, _Opened]]:
    try:
        import fsspec  # noqa: PLC0415 - an extra, for who reads from elsewhere
    except ModuleNotFoundError:
        raise FatalError(NEEDS.format(path=pattern, package="fsspec")) from None
    try:
        found = fsspec.open_files(pattern, "rb")
    except (ImportError, OSError, ValueError) as error:
        raise FatalError(f"{pattern}: {error_text(error)}") from None
    if not found:
        raise FatalError(NO_FILE.format(path=pattern))
    return [(each.path, lambda each=each: each) for each in found]  # type: ignore[misc]


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
    except (OSError, ValueError, csv.Error) as error:
        raise FatalError(f"{path} cannot be read: {error_text(error)}") from None


def _reader_of(path: str) -> Callable[[IO[bytes]], Rows]:
    reader = _READERS.get(PurePath(path).suffix.lower())
    if reader is None:
        raise FatalError(NO_FORMAT.format(path=path))
    return reader


def _read_parquet(file: IO[bytes]) -> Rows:
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - heavy, and an extra

    for batch in ParquetFile(file).iter_batches(batch_size=BATCH):
        yield batch.to_pylist()


def _read_csv(file: IO[bytes]) -> Rows:
    # A cell may be as long as a prompt; the default is 128 KB.
    csv.field_size_limit(1 << 30)
    with io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        lines = csv.DictReader(text)
        while batch := list(itertools.islice(lines, BATCH)):
            # An empty field is a missing value, as in pandas.
            yield [{name: value or None for name, value in row.items() if name} for row in batch]


def _read_jsonl(file: IO[bytes]) -> Rows:
    numbered = ((number, line) for number, line in enumerate(file, 1) if line.strip())
    while batch := list(itertools.islice(numbered, BATCH)):
        yield [_parse_line(number, line) for number, line in batch]


def _parse_line(number: int, line: bytes) -> dict[str, Any] | Broken:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Broken(f"line {number} of the file is no JSON ({error})")
    return row if isinstance(row, dict) else {"text": row}


_READERS: dict[str, Callable[[IO[bytes]], Rows]] = {
    ".parquet": _read_parquet,
    ".pq": _read_parquet,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
}
