"""Holds the settings of one agent: those of its constructor, and later changes."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent_magics.protocol.errors import FatalError
from agent_magics.settings.sources import (
    PROJECT,
    Resolved,
    Source,
    SourceState,
    resolve,
    state_of_sources,
)
from agent_magics.settings.validation import validated


class AgentSettings:
    """The settings of one agent, whose name and workspace stay as constructed.

    Args:
        values: keywords of the constructor.

    Attributes:
        given: the settings that override files, environment and defaults from the next run on.

    Raises:
        FatalError: one of them is invalid.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        values = _read_once(values)
        self._cwd_given = values.get("cwd", ".")
        settings = resolve([Source("program", values)]).settings
        self._cwd, self._roots = settings.cwd, settings.roots
        self._constructed = self.given = Source("program", self._with_folders(values))
        self._last: tuple[Source, SourceState, Resolved] | None = None

    def resolve(self, cell: Mapping[str, object] | None = None) -> Resolved:
        """Return the effective settings, with the source of each; the last ones, if none changed.

        Args:
            cell: settings of one run, which override all others.

        Raises:
            FatalError: one of them is invalid.
        """
        given, last, roots = self.given, self._last, self._roots  # other threads may set them
        if cell:
            return resolve([given, Source("cell", cell)])
        if last is not None and last[0] is given and last[1].holds():
            return last[2]
        state = state_of_sources(roots)
        resolved = resolve([given])
        self._roots = resolved.settings.roots
        # What a project's files say also depends on whether the person trusts them.
        of_project = PROJECT in resolved.origins.values() or resolved.warnings
        is_kept = resolved.settings.roots == roots and not of_project
        self._last = (given, state, resolved) if is_kept else None
        return resolved

    def changed(self, changes: Mapping[str, Any]) -> Source:
        """Return the given settings with these changes."""
        return Source(self.given.name, {**self.given.values, **_read_once(changes)})

    def over_constructed(self, name: str, given: Source) -> Source:
        """Return settings completed by those of the constructor.

        Args:
            name: the agent's name, for the message.
            given: the settings, which take precedence.

        Raises:
            FatalError: they name another workspace, or another agent.
        """
        if given.values.get("name", name) != name:
            raise FatalError(
                f"name={given.values['name']!r}: agent {name!r} keeps its name, under which its "
                "events are recorded; make another agent of that name."
            )
        if self.is_elsewhere(given):
            raise FatalError(
                f"cwd={given.values['cwd']!r}: agent {name!r} works in {str(self._cwd)!r}, and its "
                "conversation stays there. Set it back, begin a new one (%%agent --new), or use "
                "another agent (--name, name=...)."
            )
        values = {**self._constructed.values, **given.values}
        return Source(given.name, self._with_folders(values))

    def _with_folders(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return values with the folders that they name now: absolute, whatever folder the process
        is in later.
        """
        roots = {"writable_roots": values["writable_roots"]} if "writable_roots" in values else {}
        return {**values, **validated(roots), "cwd": self._cwd}

    def is_elsewhere(self, given: Source) -> bool:
        """Tell whether settings name another workspace than this agent's."""
        cwd = given.values.get("cwd", self._cwd_given)
        if cwd in (self._cwd_given, self._cwd):
            return False
        return bool(validated({"cwd": cwd})["cwd"] != self._cwd)


def _read_once(values: Mapping[str, object]) -> dict[str, object]:
    """Return values with a list in the place of an iterator, which would yield nothing later."""
    return {
        name: [*value] if isinstance(value, Iterator) else value for name, value in values.items()
    }
