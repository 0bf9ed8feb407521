"""Tells by a file's metadata whether it may have changed."""

import os


def stamp_of(found: os.stat_result) -> tuple[int, ...]:
    """Return what every write to a file changes: device, inode, size and times."""
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def file_stamp(path: str | os.PathLike[str], *, links: bool = True) -> tuple[int, ...]:
    """Return the stamp of a file, or of what a final link leads to; () where there is none."""
    try:
        return stamp_of(os.stat(path, follow_symlinks=links))
    except OSError:
        return ()
