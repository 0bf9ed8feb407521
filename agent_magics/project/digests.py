"""Records which of a project's texts for agents are trusted, by the digests that people saw."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from agent_magics.config_files.places import trust_folder
from agent_magics.config_files.trust import SHOWN_DIGEST, TrustedDigest, check_length, digest_of
from agent_magics.files.paths import printable
from agent_magics.protocol.errors import FatalError


@dataclass(frozen=True, slots=True)
class ProjectText:
    """A skill or a prompt, as its files are now.

    Attributes:
        name: by which it is used.
        place: the absolute path of its file or folder, to which trust is bound.
        description: what it is for, on one line.
        text: what it says, below its front matter.
        digest: SHA-256 of all that trust covers.
        is_own: whether it stands in the person's own folder for agent-magics.
        is_trusted: whether the person has trusted this very content.
        problem: why it cannot be used; "" where it can.
    """

    kind: ClassVar[str]

    name: str
    place: Path
    description: str = ""
    text: str = ""
    digest: str = ""
    is_own: bool = False
    is_trusted: bool = False
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether it may be used."""
        return not self.problem and (self.is_own or self.is_trusted)

    @property
    def waits(self) -> bool:
        """Whether trust would change something."""
        return not (self.problem or self.is_trusted or self.is_own)


_Each = TypeVar("_Each", bound=ProjectText)


def usable(found: Iterable[_Each]) -> list[_Each]:
    """Return those that may be used: of each name the first one."""
    first: dict[str, _Each] = {}
    for each in found:
        if each.is_usable:
            first.setdefault(each.name, each)
    return list(first.values())


def untrusted(found: Iterable[_Each]) -> list[_Each]:
    """Return those that wait for trust."""
    return [each for each in found if each.waits]


def describe_problem(one: ProjectText) -> str:
    """Return a sentence that says why one cannot be used."""
    return f"The {one.kind} in {printable(str(one.place))} is left out: {one.problem}."


def is_trusted(what: str, place: Path, digest: str) -> bool:
    """Return whether the person has trusted this very content.

    Args:
        what: "skills" or "prompts".
        place: the file or folder.
        digest: of its present content.
    """
    return TrustedDigest(place, trust_folder(what)).read() == digest


def digest_of_all(each: Iterable[ProjectText]) -> str:
    """Return one digest for several files or folders, by which they are trusted together."""
    return digest_of((os.fspath(one.place), one.digest.encode()) for one in each)


def trust(what: str, found: Iterable[_Each], digest: str) -> list[_Each]:
    """Trust the one that has a digest, or all that wait together, and return what was trusted.

    Args:
        what: "skills" or "prompts".
        found: what is there now.
        digest: as it was shown, or its beginning.

    Raises:
        FatalError: nothing has this digest (any more), or the trust cannot be kept.
    """
    command = f"%agent {what} trust"
    check_length(digest, command)
    waiting = untrusted(found)
    chosen = [one for one in waiting if one.digest.startswith(digest)]
    if digest_of_all(waiting).startswith(digest):
        chosen = waiting
    if not chosen:
        raise FatalError(
            f"Nothing was trusted: none of the {what} that wait for trust has the digest "
            f"{digest[:SHOWN_DIGEST]}. It may have changed since; look again with {command}."
        )
    for one in chosen:
        TrustedDigest(one.place, trust_folder(what)).keep(one.digest)
    return chosen
