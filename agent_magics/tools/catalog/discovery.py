"""Finds tools without an import of the program: of the project, the person, and installed packages.

Law: a project's files run only while they are, byte for byte, the ones that the person trusted; the
content that is hashed is the content that runs. A file that cannot be loaded is reported and left
out: it must not take an agent's other tools away.
"""

import hashlib
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from agent_magics.config_files.places import FOLDER, user_tools_folder
from agent_magics.config_files.trust import Trustable, digest_of
from agent_magics.dispatch.tool import Tool, as_tool, is_tool
from agent_magics.files.plain_files import read_plain
from agent_magics.project.digests import usable
from agent_magics.project.skills import Skill, find_skills
from agent_magics.protocol.errors import AgentMagicsError, FatalError, clause, typed_message

GROUP = "agent_magics.tools"

# Bytes of one file of tools; more is no file of tools, and is read again when it changes.
_LARGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class ToolFile:
    """One file of tools as it was read; this content is what runs.

    Attributes:
        trouble: why it could not be read, as text.
    """

    path: Path
    content: bytes = b""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Discovered:
    """The tools that were found.

    Attributes:
        warnings: one sentence for each tool that was left out.
        skills: the usable skills, whose tools are among them.
    """

    tools: tuple[Tool, ...] = ()
    warnings: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()


@dataclass(slots=True)
class _ScannedFolder:
    """A folder of tool files at the last scan."""

    identity: Any = ()
    found: Discovered = field(default_factory=Discovered)


class ProjectTools(Trustable[Sequence[ToolFile]]):
    """The tools in a project's ``.agent_magics/tools``.

    Args:
        folder: the workspace.
    """

    what, command, kept = "The files", "%agent tools trust", "tools"

    def __init__(self, folder: Path) -> None:
        super().__init__(Path(os.path.realpath(folder)) / FOLDER / "tools")

    def read(self) -> list[ToolFile]:
        """Return the present files."""
        return _read_files(self.folder, links=False)

    def digest(self, found: Sequence[ToolFile]) -> str:
        """Return a hash of the names and contents of all files, to which trust is bound."""
        return digest_of((file.path.name, file.content) for file in found)


class Discovery:
    """Finds the tools of one workspace; unchanged files are not loaded again."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder
        self.project = ProjectTools(folder)
        self._user_folder = user_tools_folder()
        self._seen: dict[Path, _ScannedFolder] = {}

    def find(self) -> Discovered:
        """Return all present tools, the project's first."""
        skills = usable(find_skills(self.workspace))
        parts = [
            self._look(self.project.folder, _identity(self.project.folder), self._load_project),
            self._look(self._user_folder, _identity(self._user_folder), self._load_user),
            installed_tools(),
            *map(self._look_at_skill, skills),
        ]
        tools = tuple(tool for part in parts for tool in part.tools)
        warnings = tuple(warning for part in parts for warning in part.warnings)
        return Discovered(tools, warnings, tuple(skills))

    def forget(self) -> None:
        """Drop the cache, because trust has changed."""
        self._seen.clear()

    def _look(self, folder: Path, identity: object, load: Callable[[], Discovered]) -> Discovered:
        seen = self._seen.get(folder)
        if seen is None or seen.identity != identity:
            found = load() if identity else Discovered()
            seen = self._seen[folder] = _ScannedFolder(identity, found)
        return seen.found

    def _look_at_skill(self, skill: Skill) -> Discovered:
        """Return the tools of a skill, whose code runs only where that was trusted."""
        if not skill.is_trusted:
            return Discovered()
        files = [ToolFile(skill.place / path, content) for path, content in skill.tools]
        return self._look(skill.place, skill.digest, partial(load_files, files))

    def _load_project(self) -> Discovered:
        files = self.project.read()
        if not files:
            return Discovered()
        if self.project.is_trusted(files):
            return load_files(files)
        warning = (
            f"The tools in {FOLDER}/tools are left out: you have not trusted these files (or they "
            "have changed since). %agent tools trust shows them."
        )
        return Discovered((), (warning,))

    def _load_user(self) -> Discovered:
        return load_files(_read_files(self._user_folder, links=True))


# -- files -----------------------------------------------------------------------------------------


def _identity(folder: Path) -> tuple[object, ...]:
    """Return a value that changes when a file in a folder does; () where there is no file."""
    try:
        return tuple((path.name, *_stamp(path)) for path in _paths_in(folder))
    except OSError as error:
        return (clause(error),)


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:  # a link to nothing, for example
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _paths_in(folder: Path) -> list[Path]:
    """Return the files in a folder that may hold tools, in order; none where there is no folder.

    Hidden ones are of editors: Emacs marks a file that is being edited by a link to nothing.

    Raises:
        OSError: the folder cannot be looked into.
    """
    try:
        return sorted(p for p in folder.iterdir() if p.suffix == ".py" and p.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        return []


def _read_files(folder: Path, *, links: bool) -> list[ToolFile]:
    try:
        paths = _paths_in(folder)
    except OSError as error:
        return [ToolFile(folder, trouble=clause(error))]
    files = []
    for path in paths:
        try:
            files.append(ToolFile(path, read_plain(path, _LARGEST, links=links)))
        except OSError as error:
            files.append(ToolFile(path, trouble=clause(error)))
    return files


def load_files(files: Iterable[ToolFile]) -> Discovered:
    """Run files of tools and return their `@tool` functions."""
    tools: list[Tool] = []
    warnings = []
    for file in files:
        try:
            tools += _tools_of(_run(file))
        except BaseException as error:  # whatever a file does, the other tools stay
            if isinstance(error, KeyboardInterrupt):
                raise
            warnings.append(
                f"The tools of {file.path} are left out: {clause(_reason(file, error))}."
            )
    return Discovered(tuple(tools), tuple(warnings))


def _run(file: ToolFile) -> types.ModuleType:
    """Run the content that was read, even if the file has changed since."""
    if file.trouble:
        raise FatalError(file.trouble)
    place = hashlib.sha256(os.fsencode(file.path)).hexdigest()[:12]
    name = f"agent_magics_found_{place}_{file.path.stem}"
    module = types.ModuleType(name)
    module.__file__ = str(file.path)
    sys.modules[name] = module  # so that its classes can be looked up, and pickled
    exec(compile(file.content, str(file.path), "exec"), module.__dict__)
    return module


def _tools_of(module: types.ModuleType) -> list[Tool]:
    """Return the tools in a module that it, or a module of its package, defines, in order."""
    own = f"{module.__name__}."
    found = [v for v in vars(module).values() if is_tool(v) and f"{v.__module__}.".startswith(own)]
    return list(dict.fromkeys(found))


def _reason(file: ToolFile, error: BaseException) -> str:
    if file.trouble:
        return file.trouble
    message = typed_message(error)
    if isinstance(error, (AgentMagicsError, SyntaxError)):
        return message
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file.path)]
    return f"line {lines[-1]} raised {message}" if lines else message


# -- installed packages ----------------------------------------------------------------------------


@cache
def installed_tools() -> Discovered:
    """Return the tools of installed packages: entry points of the group `agent_magics.tools`.

    Each names a function, several in a list or a tuple, or a module with `@tool` functions.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads every package's metadata

    tools: list[Tool] = []
    warnings = []
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist is not None else "a package"
        try:
            tools += _offered_by(point.load())
        except BaseException as error:  # as above: a package may end in `sys.exit()`
            if isinstance(error, KeyboardInterrupt):
                raise
            said = clause(typed_message(error))
            warnings.append(f"The tools {point.name!r} of package {package} are left out: {said}.")
    return Discovered(tuple(tools), tuple(warnings))


def _offered_by(value: Any) -> list[Tool]:
    if isinstance(value, types.ModuleType):
        return _tools_of(value)
    return [as_tool(each) for each in (value if isinstance(value, (list, tuple)) else [value])]
