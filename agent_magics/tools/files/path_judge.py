"""Resolves the paths that a model writes, and refuses those that its run may not access."""

from collections.abc import Iterable
from pathlib import Path

from agent_magics.files.paths import is_denied_read, literal_path, resolve_path, write_kind
from agent_magics.protocol.config import RunConfig, SandboxPolicy
from agent_magics.protocol.errors import RespondToModel


class PathJudge:
    """Resolves a path as the model wrote it, and checks that this run may access it."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    def __call__(self, path: str, mode: str) -> Path:
        """Resolve a path and check access to it.

        Args:
            path: as the model wrote it.
            mode: "read", "write", or "judged" if approval has already checked the access.

        Returns:
            The absolute path with all links resolved.

        Raises:
            RespondToModel: it may not be read or written.
        """
        roots = self._config.roots
        resolved = resolve_path(path, self._config.cwd)
        # Both the path as written, since a link may itself have a protected name, and the path
        # resolved above, in case a link was replaced since; without links these are one.
        places = dict.fromkeys((literal_path(path, self._config.cwd), resolved))
        reasons: Iterable[str] = ()
        if mode == "read":
            reasons = (is_denied_read(each, roots) for each in places)
        elif mode == "write":
            read_only = self._config.sandbox is SandboxPolicy.READ_ONLY
            reasons = (write_kind(each, roots, read_only)[1] for each in places)
        for reason in filter(None, reasons):
            raise RespondToModel(f"{path} may not be touched ({mode}): {reason}.")
        return resolved
