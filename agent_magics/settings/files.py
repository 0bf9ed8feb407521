"""Reads settings from configuration files: the person's own, and those of a project.

Law: a project's files are untrusted. Their settings hold only while their table is the one that the
person trusted, and only where they make a run stricter than it would be without them; no file may
give a key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import CONFIG, FOLDER, user_config_file
from agent_magics.config_files.toml_places import TomlPlaces, decode, parse_toml, read_settings
from agent_magics.config_files.trust import Trustable, digest_of
from agent_magics.protocol.config import Where
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.settings.table import DEFAULTS, SETTINGS, settings_in
from agent_magics.settings.validation import validated, validated_in
from agent_magics.text.brief import meant

PYPROJECT = "pyproject.toml"
TABLE = ("tool", "agent-magics")
# Tables of config.toml that other modules read.
OTHERS = frozenset(("mcp_servers",))
_WHAT = "settings"


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The settings of one file, as they are written there.

    Attributes:
        values: by the setting's name.
        lines: the line of each, counted from 1.
    """

    file: Path
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def place(self, name: str) -> str:
        """Return the file and line of a setting, as text."""
        return f"{self.file}, line {self.lines[name]}"


def read_user_settings() -> FileSettings | None:
    """Return the validated settings of the person's own file; None where there is none.

    Raises:
        FatalError: the file is invalid; the sentence names file and line.
    """
    file = user_config_file()
    data = read_settings(file, _WHAT, links=True)
    if data is None:
        return None
    found = _read(file, data, ())
    for name in found.values:
        if name not in SETTINGS or Where.USER not in SETTINGS[name].where:
            there = settings_in(Where.USER)
            raise FatalError(
                f"{found.place(name)}: {name!r} is no setting of this file; {meant(name, there)}"
            )
    return FileSettings(file, validated_in(found.values, found.place), found.lines)


@lru_cache(maxsize=16)
def project_files(folder: Path) -> tuple[Path, Path]:
    """Return the files of a project that may hold settings; the second overrides the first."""
    return folder / PYPROJECT, folder / FOLDER / CONFIG


class ProjectSettings(Trustable[tuple["FileSettings", ...]]):
    """The settings in a project's files.

    Args:
        folder: the workspace, an absolute path without links.
    """

    what, command, kept = "The settings", "%agent settings trust", "settings"

    def read(self) -> tuple[FileSettings, ...]:
        """Return the settings of each file that has some; a later one overrides an earlier one.

        Raises:
            FatalError: a file is invalid; the sentence names file and line.
        """
        found = []
        for file, table in zip(project_files(self.folder), (TABLE, ()), strict=True):
            data = read_settings(file, _WHAT, links=False)
            if data is not None and (settings := _read(file, data, table)).values:
                found.append(settings)
        return tuple(found)

    def digest(self, found: tuple[FileSettings, ...]) -> str:
        """Return a hash of the settings alone, to which trust is bound."""
        return digest_of(
            (each.file.name, json.dumps(each.values, sort_keys=True, default=str).encode())
            for each in found
        )


def tightening(
    found: tuple[FileSettings, ...], below: Mapping[str, object]
) -> tuple[dict[str, object], list[str]]:
    """Return the settings of a trusted project that make a run stricter.

    Args:
        found: the settings of its files; a later one overrides an earlier one.
        below: the effective values without them.

    Returns:
        The settings, and one sentence for each that is left out.
    """
    taken: dict[str, object] = {}
    left_out: list[str] = []
    for settings in found:
        for name, value in settings.values.items():
            try:
                stricter = _stricter(name, value, below.get(name, getattr(DEFAULTS, name, None)))
            except FatalError as error:
                left_out.append(f"{settings.place(name)} is left out: {short_message(error)}")
            else:
                taken[name] = stricter
    return taken, left_out


def _stricter(name: str, value: object, held: object) -> object:
    if name not in SETTINGS:
        raise FatalError(f"{name!r} is not a setting; {meant(name, SETTINGS)}")
    if Where.PROJECT not in SETTINGS[name].where:
        raise FatalError(f"a project cannot set {name!r}; set it yourself.")
    checked = validated({name: value})[name]
    if _laxity(name, checked) > _laxity(name, held):
        raise FatalError(
            f"{name}={value!r} is laxer than {held!s}, and a project may only tighten."
        )
    return checked


def _laxity(name: str, value: Any) -> Any:
    """Return a value's rank from strict to lax, for comparison."""
    order = SETTINGS[name].strictest_first
    if order:
        return order.index(value)
    return inf if value is None else value  # a float holds no whole number of any size


@lru_cache(maxsize=16)
def _read(file: Path, data: bytes, table: tuple[str, ...]) -> FileSettings:
    text = decode(data, file)
    values: Any = parse_toml(text, file)
    for name in table:
        values = values.get(name, {}) if isinstance(values, dict) else {}
    if not isinstance(values, dict):
        raise FatalError(f"{file}: {'.'.join(table)} is not a table.")
    places = TomlPlaces(text)
    others = frozenset() if table else OTHERS
    named = {name: value for name, value in values.items() if name not in others}
    return FileSettings(file, named, {name: places.line_of(*table, name) for name in named})
