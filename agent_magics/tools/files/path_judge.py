"""Resolves the paths that a model writes, and refuses those that its run may not access."""

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
        # Both the path as written and its target: a link may itself have a protected name.
        written = literal_path(path, self._config.cwd)
        reason = ""
        if mode == "read":
            reason = is_denied_read(written, roots) or is_denied_read(resolved, roots)
        elif mode == "write":
            read_only = self._config.sandbox is SandboxPolicy.READ_ONLY
            allowed, why = write_kind(written, roots, read_only)
            if allowed:  # and the path resolved above, in case a link was replaced since
                allowed, why = write_kind(resolved, roots, read_only)
            reason = "" if allowed else why
        if reason:
            raise RespondToModel(f"{path} may not be touched ({mode}): {reason}.")
        return resolved
