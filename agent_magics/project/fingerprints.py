"""Computes fingerprints of what notes are about: a file's content, a variable's schema."""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agent_magics.files.beneath import closing_descriptor, open_file, real_path

_MOST_COLUMNS = 1_000
_LENGTH = 16  # hexadecimal digits
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Anchor:
    """A file or a variable that a note is about, with its fingerprint when that was written."""

    kind: Literal["file", "variable"]
    name: str
    digest: str

    def __str__(self) -> str:
        return f"- {self.kind} `{self.name}` ({self.digest})"


class Fingerprints:
    """Computes the present fingerprints of anchors.

    Args:
        workspace: the folder to which the names of files are relative.
        namespace: the variables.
        most: bytes of all files together that are read; of further ones nothing is known.
    """

    def __init__(
        self, workspace: Path, namespace: Mapping[str, object], most: int | None = None
    ) -> None:
        self._workspace = workspace
        self._namespace = namespace
        self._left = most

    def __call__(self, anchor: Anchor) -> str | None:
        """Return the fingerprint of what an anchor names; "" where it is gone, None if unknown.

        A variable that is not there is unknown: the kernel may just have started.
        """
        if anchor.kind == "file":
            return self.of_file(self._workspace / anchor.name)
        return self.of_variable(anchor.name)

    def of_variable(self, name: str) -> str | None:
        """Return the fingerprint of a variable's type and schema; None where there is none."""
        if name not in self._namespace:
            return None
        value = self._namespace[name]
        return _short(f"{type(value).__name__} {schema_digest(value)}".encode())

    def of_file(self, path: Path) -> str | None:
        """Return the fingerprint of a regular file's content; "" where there is none, None where
        that cannot be looked at.
        """
        try:
            with closing_descriptor(open_file(real_path(path))) as descriptor:
                status = os.fstat(descriptor)
                is_file = stat.S_ISREG(status.st_mode)
                return self._digest_of(descriptor, status.st_size) if is_file else ""
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except (OSError, ValueError):
            return None

    def _digest_of(self, descriptor: int, size: int) -> str | None:
        if self._left is not None:
            if size > self._left:
                return None
            self._left -= size
        digest = hashlib.sha256()
        while size > 0 and (block := os.read(descriptor, min(_BLOCK, size))):
            digest.update(block)
            size -= len(block)  # a file that grows meanwhile is not followed
        return digest.hexdigest()[:_LENGTH]


def schema_digest(value: object) -> str:
    """Return a digest of a value's schema: columns and their types, keys, or the data type."""
    try:
        schema = repr(_schema(value))
    except Exception:  # the library's own failure: then only the type counts
        schema = ""
    return _short(schema.encode())


def _schema(value: object) -> object:
    dtypes = getattr(value, "dtypes", None)
    columns = getattr(value, "columns", None)
    if dtypes is not None and columns is not None:
        names = [str(name) for name in list(columns)[:_MOST_COLUMNS]]
        return names, [str(each) for each in list(dtypes)[:_MOST_COLUMNS]]
    if isinstance(value, dict):
        return sorted(map(str, list(value)[:_MOST_COLUMNS]))
    return str(getattr(value, "dtype", ""))


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_LENGTH]
