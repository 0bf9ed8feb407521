"""Keeps this package from importing modules out of folders that sandboxed commands may write.

Python also looks for modules in the working folder, where a model can write. So while our code, or
a package called by it, imports, finders see only places that no command may write. Imports of the
person's own code are unaffected; see "Where modules come from" in docs/security.md.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from types import FrameType, ModuleType
from typing import Any

from agent_magics.files.beneath import is_below, real_path
from agent_magics.files.own_places import holds_kernel_places, kernel_places

# This package, and the files of tools that it loads (`tools.discovery`).
_OURS = ("agent_magics.", "agent_magics_found_")

_RUNS_CELLS = "IPython.core.interactiveshell"
_NOTEBOOK = ("IPython.", "ipykernel.")
_HARMLESS = (BuiltinImporter, FrozenImporter)

_distrusted: set[str] = set()
_changing: int | None = None  # since when modules may be changed that nobody has looked at; ns
_compiles_nothing = sys.dont_write_bytecode


def distrust(folders: Iterable[str | os.PathLike[str]]) -> None:
    """Import no module from these folders or below them, except from the kernel's own places."""
    for folder in folders:
        _distrusted.update((os.path.abspath(folder), real_path(folder)))


def distrust_changes(since: int | None) -> None:
    """Import no module of the kernel's own places that was changed after a time in ns, since which
    commands may write there; None once all changes have been looked at.

    Until then Python writes no compiled modules there, so that what changes is not its doing.
    """
    global _changing, _compiles_nothing  # what is imported is the process's
    if _changing is None:
        _compiles_nothing = sys.dont_write_bytecode
    _changing = since
    sys.dont_write_bytecode = _compiles_nothing or since is not None


def is_trusted(path: str) -> bool:
    """Tell whether no command may write `path`, a module's file or an entry of `sys.path`."""
    return _is_trusted(path, _writable())


def guard_imports() -> None:
    """Guard the imports of this process; its current working folder stays distrusted from now
    on.
    """
    distrust(_writable())
    _guard_finders()


def _guard_finders() -> None:
    for place, finder in enumerate(sys.meta_path):
        if finder not in _HARMLESS and not isinstance(finder, _Guarded):
            sys.meta_path[place] = _Guarded(finder)


def _writable() -> frozenset[str]:
    """Return the folders to distrust: not /, where kernels in containers often start; as a folder
    for sandboxed commands to write it is refused.
    """
    try:
        return frozenset((*_distrusted, os.getcwd())) - {"/"}
    except OSError:  # it was deleted
        return frozenset(_distrusted - {"/"})


@lru_cache(maxsize=4096)
def _is_trusted(path: str, writable: frozenset[str]) -> bool:
    """Tell whether `path` is absolute, and the innermost folder around it (as written and resolved)
    a trusted one.
    """
    if not os.path.isabs(path):
        return False
    for place in {os.path.abspath(path), real_path(path)}:
        open_depth = _depth(place, writable)
        if open_depth and open_depth >= _depth(place, kernel_places()):
            return False
    return True


def _depth(place: str, folders: Iterable[str]) -> int:
    """Return the length of the innermost of `folders` that contains `place`; 0 where none does."""
    return max((len(folder) for folder in folders if is_below(place, (folder,))), default=0)


# -- which code imports ----------------------------------------------------------------------------


class _Importer(Enum):
    """The owner of the code whose import statement is being executed."""

    OURS = auto()  # this package, a package called by it, a discovered tool; also IPython itself
    LENT = auto()  # the person's code called by us (a tool, a hook), and all that live code calls
    PERSON = auto()


def _importer() -> _Importer:
    """Determine from the call stack which code imports."""
    frame: FrameType | None = sys._getframe(1)
    is_direct: bool | None = None  # whether the import statement itself is in the person's code
    persons = is_cell = is_notebook = False
    while frame is not None:
        names = frame.f_globals
        name = str(names.get("__name__"))
        frame = frame.f_back
        if names is globals() or name.startswith("importlib"):
            continue
        if name.startswith(_OURS):
            return _Importer.LENT if is_direct or is_cell else _Importer.OURS
        persons = persons or _is_persons(names)
        is_direct = persons if is_direct is None else is_direct
        is_cell = is_cell or (persons and name == _RUNS_CELLS)
        is_notebook = is_notebook or name.startswith(_NOTEBOOK)
    if persons:
        return _Importer.PERSON
    # Neither ours nor the person's: IPython showing an error; else a package's thread, or pytest.
    return _Importer.OURS if is_notebook else _Importer.LENT


def _is_persons(names: dict[str, Any]) -> bool:
    """Tell whether these are the globals of a notebook cell or of a module in the workspace."""
    file = names.get("__file__")
    if isinstance(file, str):
        return not is_trusted(file)
    return names.get("__name__") == "__main__"


# -- guarded finders -------------------------------------------------------------------------------


class _Guarded:
    """Wraps a module finder; for imports of this package it searches only trusted places."""

    def __init__(self, finder: Any) -> None:
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module: for our code in trusted places only, for the person's called code there
        first.
        """
        trusted = self._trusted(path)
        # Most modules are parts of a trusted package: found the same whoever imports. A reloaded
        # module (`%autoreload`) stays where it is.
        is_same = path is not None and trusted == [*path] and _changing is None
        is_free = target is not None or is_same
        importer = _Importer.PERSON if is_free else _importer()
        if importer is not _Importer.PERSON:
            _guard_finders()  # finders added since, such as importlib_metadata's
            found: ModuleSpec | None = self._finder.find_spec(name, trusted, target)
            is_ours = found is not None and (path is not None or _is_trusted_spec(found))
            if found is not None and is_ours and not _is_changing(found):
                return found
            if importer is _Importer.OURS:
                return None
        spec: ModuleSpec | None = self._finder.find_spec(name, path, target)
        return spec

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """Find installed packages and their plugins, restricted as in `find_spec`."""
        find = getattr(self._finder, "find_distributions", None)
        if find is None:
            return ()
        if _importer() is _Importer.OURS:
            path = [entry for entry in context.path if is_trusted(entry)]
            context = type(context)(**{**vars(context), "path": path})
        found: Iterable[Any] = find(context)
        return found

    def _trusted(self, path: Sequence[str] | None) -> list[str] | None:
        if path is None:
            if self._finder is not PathFinder:
                return None
            path = sys.path
        writable = _writable()
        return [entry for entry in path if _is_trusted(entry, writable)]


def _is_trusted_spec(spec: ModuleSpec) -> bool:
    places = [spec.origin] if spec.has_location else spec.submodule_search_locations or ()
    return all(is_trusted(place or "") for place in places)


def _is_changing(spec: ModuleSpec) -> bool:
    """Tell whether a command may have written a module, or its compiled form."""
    since, writable = _changing, _writable()
    if since is None:
        return False
    for file in filter(None, (spec.origin, spec.cached)):
        place = real_path(file)
        while _depth(place, writable) and not holds_kernel_places(place):
            with suppress(OSError):
                if os.lstat(place).st_ctime_ns >= since:
                    return True
            place = os.path.dirname(place)
    return False
