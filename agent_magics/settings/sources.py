"""Merges the sources of settings by precedence, and records the origin of each value.

From highest to lowest: a cell's option, values of a program or of `%config`, the project's files
(trusted, and only to tighten), JupyterLab's settings editor, the person's file, the environment,
the default.
"""

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import user_config_file
from agent_magics.files.plain_files import Stamp, file_stamp
from agent_magics.protocol.config import Settings
from agent_magics.protocol.errors import FatalError, short_message
from agent_magics.settings.editor import read_editor_settings
from agent_magics.settings.files import (
    ProjectSettings,
    project_files,
    read_user_settings,
    tightening,
)
from agent_magics.settings.table import SETTINGS
from agent_magics.settings.validation import check_roots, validated, validated_in

# A key is looked up by the provider that it belongs to, and never stands in the settings.
_VARIABLES = {n: each.variable for n, each in SETTINGS.items() if each.variable and n != "api_key"}
DEFAULT, ENVIRONMENT, USER, PROJECT = "default", "environment", "your config.toml", "project"
EDITOR = "JupyterLab"


@dataclass(frozen=True, slots=True)
class Source:
    """One source of settings and its values.

    Attributes:
        name: the source as `%agent status` shows it.
    """

    name: str
    values: Mapping[str, Any] = field(repr=False)  # a key may be one


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """The effective settings; the same object while nothing has changed.

    Attributes:
        origins: the source of each value, by the setting's name.
        environment: the process's environment in which they hold.
        warnings: one sentence for each value that was left out.
    """

    settings: Settings
    origins: Mapping[str, str]
    environment: Mapping[str, str] = field(repr=False)  # it holds keys
    warnings: Sequence[str] = field(default=())


@dataclass(frozen=True, slots=True, eq=False)
class SourceState:
    """What the sources that the program does not give were at one moment.

    Attributes:
        environment: the process's environment, which also says where the person's file is.
        editor: what JupyterLab's settings editor holds.
        files: the stamp of each file of settings, by its path.
        roots: what each root of the workspace is, by its path.
    """

    environment: Mapping[Any, Any] = field(repr=False)  # it holds keys
    editor: Mapping[str, object]
    files: tuple[tuple[str, Stamp], ...]
    roots: tuple[tuple[str, Stamp], ...]

    def holds(self) -> bool:
        """Return whether nothing of it has changed since."""
        return (
            os.environ._data == self.environment  # type: ignore[attr-defined]
            and read_editor_settings() == self.editor
            and all(file_stamp(file) == stamp for file, stamp in self.files)
            and all(_identity(root) == identity for root, identity in self.roots)
        )


def resolve(given: Sequence[Source]) -> Resolved:
    """Return the effective settings of a run.

    Args:
        given: values of a program, a notebook, a cell; a later source overrides an earlier one.

    Raises:
        FatalError: a setting is invalid; the sentence says which, where and why.
    """
    below = list[Source]()
    if (user := read_user_settings()) is not None:
        below.append(Source(USER, user.values))
    below.append(Source(EDITOR, read_editor_settings()))
    checked = [Source(each.name, validated(each.values)) for each in given]
    chosen = _values_of(checked)
    workspace = {"cwd": chosen["cwd"]} if "cwd" in chosen else validated({"cwd": "."})
    project, warnings = _from_project(workspace["cwd"], _values_of(below))
    environment = _from_environment(without={*_values_of(below), *chosen})
    sources = [Source(ENVIRONMENT, environment), *below, Source(PROJECT, project), *checked]
    origins = {name: source.name for source in sources for name in source.values}
    settings = Settings(**{**_values_of(sources), **workspace})
    check_roots(settings)
    origins = {name: origins.get(name, DEFAULT) for name in SETTINGS}
    return Resolved(settings, origins, dict(os.environ), warnings)


def state_of_sources(roots: Sequence[Path]) -> SourceState:
    """Return what the sources are now.

    Args:
        roots: the workspace, then the other folders that may be written; each is one of them.
    """
    files = (user_config_file(), *project_files(roots[0]))
    return SourceState(
        _environment(),
        read_editor_settings(),
        tuple((str(file), file_stamp(file)) for file in files),
        tuple((str(root), _identity(str(root))) for root in roots),
    )


def _environment() -> dict[Any, Any]:
    # `dict(os.environ)` decodes all of it, which takes as long as resolving links.
    return os.environ._data.copy()  # type: ignore[attr-defined, no-any-return]


def _identity(folder: str) -> Stamp:
    return file_stamp(folder)[:2]  # not its times, which any file in it changes


def _values_of(sources: Sequence[Source]) -> dict[str, Any]:
    return {name: value for source in sources for name, value in source.values.items()}


def _from_environment(without: Set[str]) -> dict[str, Any]:
    """Return what the environment sets, but what another source does: that need not fit."""
    given = {n: os.environ.get(each) for n, each in _VARIABLES.items() if n not in without}
    found = {name: value for name, value in given.items() if value}
    return validated_in(found, lambda name: f"The variable {_VARIABLES[name]}")


def _from_project(folder: Path, held: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    project = ProjectSettings(folder)
    try:
        found = project.read()
    except FatalError as error:  # a faulty file of a project must not stop the person's work
        return {}, [f"The project's settings are left out: {short_message(error)}"]
    if not found:
        return {}, []
    if project.is_trusted(found):
        return tightening(found, held)
    names = " and ".join(str(each.file.relative_to(project.folder)) for each in found)
    return {}, [
        f"The settings in {names} are left out: you have not trusted them (or they have changed "
        "since). %agent settings trust shows them."
    ]
