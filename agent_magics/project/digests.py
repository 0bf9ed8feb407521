"""Trusts what a project has for agents, one by one or together, by digests that people saw."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from agent_magics.config_files.places import trust_folder
from agent_magics.config_files.trust import SHOWN_DIGEST, TrustedDigest, check_length, digest_of
from agent_magics.protocol.errors import FatalError


class Digested(Protocol):
    """What trust binds to: a file or folder with the digest of its content."""

    @property
    def place(self) -> Path:
        """The absolute path of the file or folder."""

    @property
    def digest(self) -> str:
        """The SHA-256 digest of all that trust covers."""


_Each = TypeVar("_Each", bound=Digested)


def is_trusted(what: str, place: Path, digest: str) -> bool:
    """Return whether the person has trusted this very content.

    Args:
        what: "skills" or "prompts".
        place: the file or folder.
        digest: of its present content.
    """
    return TrustedDigest(place, trust_folder(what)).read() == digest


def digest_of_all(each: Iterable[Digested]) -> str:
    """Return one digest for several files or folders, by which they are trusted together."""
    return digest_of((os.fspath(one.place), one.digest.encode()) for one in each)


def trust(what: str, waiting: Sequence[_Each], digest: str) -> list[_Each]:
    """Trust the one that has a digest, or all together, and return what was trusted.

    Args:
        what: "skills" or "prompts".
        waiting: what is there now and not trusted.
        digest: as it was shown, or its beginning.

    Raises:
        FatalError: nothing has this digest (any more), or the trust cannot be kept.
    """
    command = f"%agent {what} trust"
    check_length(digest, command)
    chosen = [one for one in waiting if one.digest.startswith(digest)]
    if digest_of_all(waiting).startswith(digest):
        chosen = list(waiting)
    if not chosen:
        raise FatalError(
            f"Nothing was trusted: none of the {what} that wait for trust has the digest "
            f"{digest[:SHOWN_DIGEST]}. It may have changed since; look again with {command}."
        )
    for one in chosen:
        try:
            TrustedDigest(one.place, trust_folder(what)).keep(one.digest)
        except OSError as error:
            raise FatalError(f"Your trust could not be kept: {error}.") from None
    return chosen
