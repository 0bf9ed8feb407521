"""Replaces files as a whole, so that nobody ever reads half of one."""

import os
import tempfile
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a new file beside `path`, flush it to the disk, and let it take the name.

    Args:
        path: the file; its folder must exist.
        content: all bytes of the new file.
        mode: its permission bits; while it is written, only its owner may read it.

    Raises:
        OSError: it could not be written; the old file is unchanged.
    """
    fd, beside = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        Path(beside).replace(path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
