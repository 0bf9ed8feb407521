"""Keeps a server's view of the files exact: looks at them before a question, and sends changes.

A file is looked at by its status (times, size, inode). One whose status changed shortly before
it was read may change again within the same tick of the clock; it is then read again next time.
A folder is listed again only where its status has changed.
"""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lsprotocol import types

from agent_magics.files.plain_files import NotPlain, read_plain, read_with_status
from agent_magics.protocol.errors import RespondToModel, clause
from agent_magics.symbols.servers.connection import Connection
from agent_magics.symbols.servers.languages import concerns, language_id
from agent_magics.symbols.text import SourceText

MOST_BYTES = 4 << 20  # of a file that is sent to a server
_MOST_OPEN = 200  # files; beyond, those not asked about for longest are closed
_MOST_FILES = 50_000  # looked at below a root
_TICK_NS = 50_000_000  # of the clock that stamps files, at most
_FOLDER_TICK_NS = 3_000_000_000  # of file systems that stamp folders coarsely, such as FAT
_SKIPPED = frozenset(("node_modules", "__pycache__", "site-packages"))

_Stamp = tuple[int, ...]


@dataclass(slots=True)
class Document:
    """The text and version of a file that the server knows.

    Attributes:
        source: its text.
        stamp: its status when it was read.
        is_settled: whether any later change has another status.
        is_given: whether it is the code of a notebook, which is given and not read.
        version: counts the texts sent.
    """

    source: SourceText
    stamp: _Stamp
    is_settled: bool
    is_given: bool = False
    version: int = 1


@dataclass(frozen=True, slots=True)
class _FolderContent:
    """What is in a folder.

    Attributes:
        stamp: its status; () where a later change may leave the same.
        count: how many entries it has.
        folders: the paths of the folders in it that are looked at.
        files: the paths of the files in it that concern the server.
    """

    stamp: _Stamp
    count: int
    folders: Sequence[str]
    files: Sequence[str]


class Documents:
    """The files below a root as one server sees them.

    `look` may run in a thread, one at a time; the rest on the event loop.

    Args:
        connection: to the server.
        root: the folder.
        language: of the server.
    """

    def __init__(self, connection: Connection, root: Path, language: str) -> None:
        self._connection = connection
        self._root = root
        self._language = language
        self._open: dict[Path, Document] = {}  # the one asked about last is the last
        self._seen: dict[str, _Stamp] | None = None
        self._folders: dict[str, _FolderContent] = {}
        self._unsettled: set[str] = set()  # whose next change may not be seen by its status
        self.changed = 0.0  # when the server was last sent a change, in seconds

    # -- one file ----------------------------------------------------------------------------------

    def open(self, path: Path, given: str | None = None) -> Document:
        """Send the server the present text of a file, which is open from now on; return the file.

        Args:
            path: the file.
            given: the code of a notebook, which stands for its file from now on.

        Raises:
            RespondToModel: it cannot be read.
        """
        document = self._open.get(path)
        if document is None:
            if given is None:
                document = Document(*_read(path))
            else:
                document = Document(SourceText(given), (), True, is_given=True)
            text, self.changed = document.source.text, time.monotonic()
            self._connection.pushed[path] = (0.0, None)
            item = types.TextDocumentItem(path.as_uri(), language_id(path), 1, text)
            self._connection.notify(
                types.TEXT_DOCUMENT_DID_OPEN, types.DidOpenTextDocumentParams(item)
            )
        elif given is not None:
            self._send_change(path, document, SourceText(given))
        else:
            self._renew(path, document)
        self._open.pop(path, None)
        self._open[path] = document
        while len(self._open) > _MOST_OPEN:
            oldest = next(iter(self._open))
            del self._open[oldest]
            self._send_close(oldest)
        return document

    def _renew(self, path: Path, document: Document) -> None:
        if document.is_given or (document.is_settled and _stamp_of(path) == document.stamp):
            return
        source, document.stamp, document.is_settled = _read(path)
        self._send_change(path, document, source)

    def _send_change(self, path: Path, document: Document, source: SourceText) -> None:
        if source.text == document.source.text:
            return
        document.source, self.changed = source, time.monotonic()
        document.version += 1
        name = types.VersionedTextDocumentIdentifier(document.version, path.as_uri())
        change = types.TextDocumentContentChangeWholeDocument(source.text)
        self._connection.notify(
            types.TEXT_DOCUMENT_DID_CHANGE, types.DidChangeTextDocumentParams(name, [change])
        )

    def _send_close(self, path: Path) -> None:
        name = types.TextDocumentIdentifier(path.as_uri())
        self._connection.pushed.pop(path, None)
        self._connection.notify(
            types.TEXT_DOCUMENT_DID_CLOSE, types.DidCloseTextDocumentParams(name)
        )

    def text_of(self, path: Path) -> SourceText | None:
        """Return the text of a file as the server has it, or as it is now; None if unreadable."""
        document = self._open.get(path)
        if document is not None:
            return document.source
        with suppress(OSError):
            return _decoded(read_plain(path, MOST_BYTES))
        return None

    # -- all files ---------------------------------------------------------------------------------

    def look(self) -> dict[str, types.FileChangeType]:
        """Look at all files below the root; return which changed since the last look, and how.

        May take long for many files, and so runs in a thread.
        """
        recent = time.time_ns() - _TICK_NS
        found = dict(self._walk())
        known, self._seen = self._seen, found
        unsettled = self._unsettled
        self._unsettled = {path for path, stamp in found.items() if stamp and stamp[0] > recent}
        if known is None or (known == found and not unsettled):
            return {}
        kinds = types.FileChangeType
        changed = {
            path: kinds.Changed if path in known else kinds.Created
            for path, stamp in found.items()
            if known.get(path) != stamp or path in unsettled
        }
        return changed | dict.fromkeys(known.keys() - found.keys(), kinds.Deleted)

    def send(self, changes: dict[str, types.FileChangeType]) -> bool:
        """Send the changes that `look` has found, and the present texts of all open files.

        Returns:
            Whether files came or went.
        """
        gone = []
        for path in list(self._open):
            document = self._open[path]
            try:
                self._renew(path, document)
            except RespondToModel:  # deleted, or not readable any more
                gone.append(path)
        # One that came and went between two looks has been seen by the server alone.
        unseen = {str(path) for path in gone}.difference(self._seen or ())
        changes = dict.fromkeys(unseen, types.FileChangeType.Deleted) | changes
        if changes:
            self.changed = time.monotonic()
            events = [types.FileEvent(Path(path).as_uri(), how) for path, how in changes.items()]
            self._connection.notify(
                types.WORKSPACE_DID_CHANGE_WATCHED_FILES, types.DidChangeWatchedFilesParams(events)
            )
        for path in gone:  # after it is said, or Pyright goes on importing what is deleted
            del self._open[path]
            self._send_close(path)
        return any(how is not types.FileChangeType.Changed for how in changes.values())

    def _walk(self) -> Iterator[tuple[str, _Stamp]]:
        """Yield the files that concern the server, each with its status."""
        waiting, room = [str(self._root)], _MOST_FILES
        known, self._folders = self._folders, {}
        while waiting and room > 0:
            name = waiting.pop()
            try:
                folder = self._list(name, room, known.get(name))
            except OSError:  # it is gone, or may not be read
                continue
            self._folders[name] = folder
            room -= folder.count
            waiting += folder.folders
            for path in folder.files:
                try:
                    yield path, _stamp(os.lstat(path))
                except OSError:
                    continue

    def _list(self, name: str, most: int, known: _FolderContent | None) -> _FolderContent:
        """Return what is in a folder, of at most so many entries; as it is `known` if unchanged."""
        now, status = time.time_ns(), os.lstat(name)
        stamp = (status.st_ctime_ns, status.st_mtime_ns, status.st_ino, status.st_dev)
        if known is not None and known.stamp == stamp:
            return known
        folders, files = list[str](), list[str]()
        with os.scandir(name) as found:
            entries = list(islice(found, most))
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not (entry.name.startswith(".") or entry.name in _SKIPPED):
                    folders.append(entry.path)
            elif concerns(self._language, entry.name):
                files.append(entry.path)
        is_settled = stamp[0] < now - _FOLDER_TICK_NS
        return _FolderContent(stamp if is_settled else (), len(entries), folders, files)


def _read(path: Path) -> tuple[SourceText, _Stamp, bool]:
    now = time.time_ns()
    try:
        data, status = read_with_status(path, MOST_BYTES)
    except NotPlain as error:
        raise RespondToModel(
            f"{path.name} is not sent to a language server: {clause(error)}."
        ) from None
    except OSError as error:
        raise RespondToModel(f"{path} cannot be read: {clause(error)}.") from None
    stamp = _stamp(status)
    return _decoded(data), stamp, not _is_recent(stamp, now) and stamp == _stamp_of(path)


def _decoded(data: bytes) -> SourceText:
    return SourceText(data.decode("utf-8", "replace").removeprefix("\ufeff"))


def _stamp(status: os.stat_result) -> _Stamp:
    if not stat.S_ISREG(status.st_mode):
        return ()
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


def _stamp_of(path: Path) -> _Stamp:
    try:
        return _stamp(path.lstat())
    except OSError:
        return ()


def _is_recent(stamp: _Stamp, now: int) -> bool:
    """Tell whether a file changed so shortly before `now` that a later change may look the same."""
    return bool(stamp) and stamp[0] > now - _TICK_NS
