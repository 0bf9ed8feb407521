"""Records which files a person trusts, by SHA-256 digest, in a folder outside every project."""

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from agent_magics.config_files.places import trust_folder
from agent_magics.config_files.toml_edit import write_text
from agent_magics.files.locks import locked
from agent_magics.files.plain_files import load_json, read_plain
from agent_magics.protocol.errors import FatalError, short_message

SHOWN_DIGEST = 12  # characters of a digest that a person is shown, and must repeat
_Found = TypeVar("_Found")


def check_length(digest: str, command: str) -> None:
    """Check that a digest is long enough for what it names to be what the person has seen.

    Args:
        digest: as the person gave it.
        command: shows digests.

    Raises:
        FatalError: it is too short.
    """
    if len(digest) < SHOWN_DIGEST:
        raise FatalError(
            f"{digest!r} is too short for a digest: give all {SHOWN_DIGEST} characters that "
            f"{command} shows."
        )


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return a SHA-256 digest of files' names and contents, independent of their order.

    Args:
        files: name and content of each.
    """
    digest = hashlib.sha256()
    for name, content in sorted(files):
        # The lengths too, so that no two lists of files concatenate to the same bytes.
        digest.update(f"{len(os.fsencode(name))} {len(content)} ".encode())
        digest.update(os.fsencode(name) + content)
    return digest.hexdigest()


class TrustedDigest:
    """The stored digest of the trusted files of one folder.

    Args:
        folder: the project.
        kept_in: the person's folder of stored digests, one file per project.
    """

    def __init__(self, folder: Path, kept_in: Path) -> None:
        self._folder = folder
        self._kept_in = kept_in

    @property
    def _file(self) -> Path:
        name = hashlib.sha256(os.fsencode(self._folder)).hexdigest()
        return self._kept_in / f"{name}.json"

    def read(self) -> str:
        """Return the trusted digest, or "" where there is none."""
        try:
            kept = load_json(read_plain(self._file))
        except (OSError, ValueError):
            return ""
        return str(kept.get("digest", "")) if isinstance(kept, dict) else ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other kernels from storing a digest, between reading the files and `keep`.

        Raises:
            FatalError: another process holds it for long.
        """
        with ExitStack() as stack:
            with suppress(OSError):  # a folder that cannot be written: nothing is kept there
                self._kept_in.mkdir(parents=True, exist_ok=True, mode=0o700)
                stack.enter_context(locked(self._file))
            yield

    def keep(self, digest: str) -> None:
        """Store `digest` as the only trusted one.

        Raises:
            FatalError: it could not be written.
        """
        try:
            self._kept_in.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_text(self._file, json.dumps({"folder": str(self._folder), "digest": digest}))
        except OSError as error:
            raise FatalError(f"Your trust could not be kept: {short_message(error)}.") from None


class Trustable(ABC, Generic[_Found]):
    """What a project's files say of one matter, which holds once the person has trusted it.

    Args:
        folder: where the files stand.

    Attributes:
        what: the matter, as a sentence begins.
        command: what shows it and trusts it.
        kept: the name by which `trust_folder` knows the matter.
    """

    what: ClassVar[str]
    command: ClassVar[str]
    kept: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trusted = TrustedDigest(folder, trust_folder(self.kept))

    @abstractmethod
    def read(self) -> _Found:
        """Return what the files say now.

        Raises:
            FatalError: a file cannot be read or understood.
        """

    @abstractmethod
    def digest(self, found: _Found) -> str:
        """Return the digest of what trust binds to."""

    def is_trusted(self, found: _Found) -> bool:
        """Tell whether this very content was trusted."""
        return self._trusted.read() == self.digest(found)

    def trust(self, digest: str) -> None:
        """Trust what stands there now, if it is what the person has looked at.

        Args:
            digest: of that, or its beginning as it was shown.

        Raises:
            FatalError: it is not that (any more), or the trust cannot be kept.
        """
        check_length(digest, self.command)
        with self._trusted.held():
            now = self.digest(self.read())
            if not now.startswith(digest):
                raise FatalError(
                    f"{self.what} in {self.folder} are not (or no longer) those of "
                    f"{digest[:SHOWN_DIGEST]}; look at them again: {self.command}."
                )
            self._trusted.keep(now)
