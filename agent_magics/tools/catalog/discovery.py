"""Tools that nobody imports: of the project, of the person, and of installed packages.

Law: a project's files run only while they are, byte for byte, the ones that the person trusted;
what is hashed is what is run. What cannot be loaded is told and left out: one broken file must not
take an agent's other tools away.
"""

import hashlib
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from agent_magics.dispatch.rules import FOLDER, trust_folder, user_tools_folder
from agent_magics.dispatch.tool import as_tool, is_tool
from agent_magics.dispatch.trust import TrustedDigest, digest_of
from agent_magics.protocol.errors import AgentMagicsError, FatalError

GROUP = "agent_magics.tools"

# Bytes of one file of tools; more is no file of tools, and is read again when it changes.
_LARGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class ToolFile:
    """One file of tools as it was read; what is run is this content."""

    path: Path
    content: bytes


@dataclass(frozen=True, slots=True)
class Discovered:
    """What was found.

    Attributes:
        warnings: a sentence for each thing that was left out.
    """

    tools: tuple[Callable[..., Any], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Folder:
    """A folder of tool files as it was looked at last."""

    identity: tuple[Any, ...] = ()
    found: Discovered = field(default_factory=Discovered)


class ProjectTools:
    """The tools in a project's ``.agent_magics/tools``.

    Args:
        folder: the workspace.
        state: where the digests of trusted folders are kept.
    """

    def __init__(self, folder: Path, *, state: Path | None = None) -> None:
        self.folder = Path(os.path.realpath(folder)) / FOLDER / "tools"
        self._trusted = TrustedDigest(self.folder, state or trust_folder("tools"))

    def files(self) -> list[ToolFile]:
        """Return the files as they are now."""
        return _read_files(self.folder)

    @staticmethod
    def digest(files: Iterable[ToolFile]) -> str:
        """Return what trust binds to: the names and contents of all files."""
        return digest_of((file.path.name, file.content) for file in files)

    def is_trusted(self, files: Iterable[ToolFile]) -> bool:
        """Tell whether these very files were trusted."""
        return self._trusted.read() == self.digest(files)

    def trust(self, digest: str) -> None:
        """Trust the files of this digest, and those alone.

        Raises:
            FatalError: the files are others by now.
            OSError: it cannot be kept.
        """
        if digest != self.digest(self.files()):
            raise FatalError(
                f"The files in {self.folder} are not (or no longer) those of {digest[:12]}; look "
                "at them again: %agent tools trust."
            )
        self._trusted.keep(digest)


class Discovery:
    """Finds tools for one workspace; what has not changed is not loaded again."""

    def __init__(self, folder: Path) -> None:
        self.project = ProjectTools(folder)
        self._user_folder = user_tools_folder()
        self._seen: dict[Path, _Folder] = {}

    def find(self) -> Discovered:
        """Return all tools there are now, the project's first."""
        parts = [
            self._look(self.project.folder, self._load_project),
            self._look(self._user_folder, self._load_user),
            installed_tools(),
        ]
        tools = tuple(tool for part in parts for tool in part.tools)
        return Discovered(tools, tuple(word for part in parts for word in part.warnings))

    def forget(self) -> None:
        """Look at everything anew: what is trusted has changed."""
        self._seen.clear()

    def _look(self, folder: Path, load: Callable[[], Discovered]) -> Discovered:
        identity = _identity(folder)
        seen = self._seen.get(folder)
        if seen is None or seen.identity != identity:
            found = load() if identity else Discovered()
            seen = self._seen[folder] = _Folder(identity, found)
        return seen.found

    def _load_project(self) -> Discovered:
        files = self.project.files()
        if not files:
            return Discovered()
        if self.project.is_trusted(files):
            return load_files(files)
        word = (
            f"The tools in {FOLDER}/tools are left out: you have not trusted these files (or they "
            "have changed since). %agent tools trust shows them."
        )
        return Discovered((), (word,))

    def _load_user(self) -> Discovered:
        return load_files(_read_files(self._user_folder))


# -- files -----------------------------------------------------------------------------------------


def _identity(folder: Path) -> tuple[Any, ...]:
    """Return what changes when a file does; () where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            stats = [(e.name, e.stat()) for e in entries if e.name.endswith(".py")]
    except OSError:
        return ()
    return tuple(sorted((name, s.st_mtime_ns, s.st_size, s.st_ino) for name, s in stats))


def _read_files(folder: Path) -> list[ToolFile]:
    files = []
    for path in sorted(folder.glob("*.py")):
        try:
            content = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
        except OSError:
            continue
        files.append(ToolFile(path, content))
    return files


def load_files(files: Iterable[ToolFile]) -> Discovered:
    """Run files of tools and return their `@tool` functions."""
    tools: list[Callable[..., Any]] = []
    warnings = []
    for file in files:
        try:
            tools += _tools_of(_run(file))
        except BaseException as error:  # whatever a file does, the other tools stay
            if isinstance(error, KeyboardInterrupt):
                raise
            warnings.append(f"The tools of {file.path} are left out: {_told(file, error)}.")
    return Discovered(tuple(tools), tuple(warnings))


def _run(file: ToolFile) -> types.ModuleType:
    """Run the content that was read, whatever stands in the file by now."""
    place = hashlib.sha256(os.fsencode(file.path)).hexdigest()[:12]
    name = f"agent_magics_found_{place}_{file.path.stem}"
    module = types.ModuleType(name)
    module.__file__ = str(file.path)
    sys.modules[name] = module  # so that its classes can be looked up, and pickled
    exec(compile(file.content, str(file.path), "exec"), module.__dict__)
    return module


def _tools_of(module: types.ModuleType) -> list[Callable[..., Any]]:
    """Return the tools that a module defines itself, in order."""
    found = [v for v in vars(module).values() if is_tool(v) and v.__module__ == module.__name__]
    return list(dict.fromkeys(found))


def _told(file: ToolFile, error: BaseException) -> str:
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, (AgentMagicsError, SyntaxError)):
        return words.rstrip(".")
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file.path)]
    return f"line {lines[-1]} raised {words}" if lines else words


# -- installed packages ----------------------------------------------------------------------------


@cache
def installed_tools() -> Discovered:
    """Return the tools of installed packages: entry points of the group `agent_magics.tools`.

    Each names a function, several in a list or a tuple, or a module with `@tool` functions.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads every package's metadata

    tools: list[Callable[..., Any]] = []
    warnings = []
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist is not None else "a package"
        try:
            tools += _offered_by(point.load())
        except Exception as error:
            warnings.append(
                f"The tools {point.name!r} of package {package} are left out: "
                f"{type(error).__name__}: {error}."
            )
    return Discovered(tuple(tools), tuple(warnings))


def _offered_by(value: Any) -> list[Callable[..., Any]]:
    if isinstance(value, types.ModuleType):
        return _tools_of(value)
    return [as_tool(each) for each in (value if isinstance(value, (list, tuple)) else [value])]
