"""What a person said they trust: the digest of files, kept where no project can write."""

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from agent_magics.dispatch.toml_edit import write_text


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """Return what only the same files with the same content have again.

    Args:
        files: name and content of each.
    """
    digest = hashlib.sha256()
    for name, content in sorted(files):
        # The lengths too, so that no two lists of files look alike when they are put together.
        digest.update(f"{len(os.fsencode(name))} {len(content)} ".encode())
        digest.update(os.fsencode(name) + content)
    return digest.hexdigest()


class TrustedDigest:
    """The digest that was trusted for one folder.

    Args:
        folder: the project.
        kept_in: the person's folder where digests are kept, one file a project.
    """

    def __init__(self, folder: Path, kept_in: Path) -> None:
        self._folder = folder
        self._file = kept_in / (hashlib.sha256(os.fsencode(folder)).hexdigest() + ".json")

    def read(self) -> str:
        """Return what was trusted, "" where nothing was."""
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        return str(kept.get("digest", "")) if isinstance(kept, dict) else ""

    def keep(self, digest: str) -> None:
        """Trust a digest from now on, and no other.

        Raises:
            OSError: that cannot be kept.
        """
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_text(self._file, json.dumps({"folder": str(self._folder), "digest": digest}))
