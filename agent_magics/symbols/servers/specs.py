"""Finds the language server of a language: in the settings, in Jupyter's, in what is installed.

Law: a program that was found, and not named by the person, lies where no command may write.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import util
from pathlib import Path
from typing import Any

from agent_magics.files.plain_files import load_json, read_plain
from agent_magics.files.trusted_imports import is_trusted
from agent_magics.protocol.checked import check
from agent_magics.protocol.errors import FatalError

_GROUP = "jupyter_lsp_spec_v1"  # jupyter-lsp's entry points
_APPS = ("_server_", "_notebook_", "_")  # whose configuration jupyter-lsp reads: jupyter*config
_PYRIGHT = {
    "python": {"pythonPath": sys.executable},
    # The checks that nearly all projects mean to pass; a project's own configuration goes first.
    "basedpyright": {
        "analysis": {"diagnosticMode": "openFilesOnly", "typeCheckingMode": "standard"}
    },
}
_START_PYRIGHT = "from basedpyright.langserver import main; main()"
# Initialization options where none are given. Nothing is downloaded: the server has no network. Its
# syntax server would answer first, and silently leave out the files that are not open.
_OPTIONS = {
    "typescript": {
        "disableAutomaticTypingAcquisition": True,
        "tsserver": {"useSyntaxServer": "never"},
    }
}
_KEYS = ("command", "args", "env", "settings", "options")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """How a language server is started.

    Attributes:
        name: its name for people.
        argv: program and arguments.
        env: environment variables besides those of commands.
        settings: what it gets when it asks for its configuration, by section.
        options: its initialization options.
        source: where it was found, in a few words.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Any = None
    source: str = ""

    @property
    def key(self) -> str:
        """A text that is equal for equal servers."""
        parts = (self.argv, dict(self.env), dict(self.settings), self.options)
        return json.dumps(parts, sort_keys=True, default=str)


def read_table(table: Mapping[str, object] | None) -> dict[str, ServerSpec | None]:
    """Return the servers of the setting `language_servers`, by language; None turns one off.

    Raises:
        FatalError: the table is invalid; the sentence says where.
    """
    check("language_servers", table, Mapping | None)
    return {str(name): _of_setting(str(name), value) for name, value in (table or {}).items()}


def _of_setting(language: str, value: object) -> ServerSpec | None:
    where = f"language_servers[{language!r}]"
    if value is False or value is None:
        return None
    if not isinstance(value, Mapping) or not isinstance(value.get("command"), str):
        raise FatalError(
            f"{where} is {value!r}; it must be False, or a table such as "
            '{"command": "pylsp", "args": []}.'
        )
    if unknown := ", ".join(sorted(set(map(str, value)) - set(_KEYS))):
        raise FatalError(f"{where} has {unknown}; known are {', '.join(_KEYS)}.")
    command, args = value["command"], value.get("args", ())
    check(f"{where}['args']", args, Sequence[str])
    for key in ("env", "settings"):
        check(f"{where}[{key!r}]", value.get(key), Mapping | None)
    return ServerSpec(
        Path(command).name,
        (command, *args),
        dict(value.get("env") or {}),
        dict(value.get("settings") or {}),
        value.get("options", _OPTIONS.get(language)),
        "the setting language_servers",
    )


def find_server(language: str, table: Mapping[str, ServerSpec | None]) -> ServerSpec | None:
    """Return the server of a language; None where there is none.

    The setting goes first, then Jupyter's configuration, then for Python basedpyright, then what
    jupyter-lsp's entry points find.

    Args:
        language: such as "python".
        table: from `read_table`.
    """
    return table[language] if language in table else _found(language, os.environ.get("PATH", ""))


@lru_cache(maxsize=32)
def _found(language: str, path: str) -> ServerSpec | None:
    """Return the server found on this machine; `path` only tells when to look again."""
    finds = (_configured, _built_in, _from_entry_points)
    return next((spec for find in finds for spec in find(language)), None)


def what_is_missing(language: str) -> str:
    """Return one sentence on how to get a server for a language."""
    if language == "python":
        return 'Python has no language server here: pip install "agent-magics[lsp]".'
    return (
        f"{language} has no language server here: install one that jupyter-lsp finds, or name it "
        f'in the setting language_servers ({{"{language}": {{"command": ...}}}}).'
    )


def client_is_missing() -> str:
    """Return a sentence where the protocol's packages are not installed, else ""."""
    if all(util.find_spec(name) for name in ("lsprotocol", "pygls")):
        return ""
    return 'Language servers need packages that are not there: pip install "agent-magics[lsp]".'


def _built_in(language: str) -> Iterator[ServerSpec]:
    if language == "python" and util.find_spec("basedpyright") is not None:
        argv = (sys.executable, "-P", "-c", _START_PYRIGHT, "--stdio")
        yield ServerSpec("basedpyright", argv, settings=_PYRIGHT, source="agent-magics[lsp]")


# -- jupyter-lsp -----------------------------------------------------------------------------------


def _configured(language: str) -> Iterator[ServerSpec]:
    """Yield the servers of Jupyter's configuration files, the last file first."""
    from jupyter_core.paths import jupyter_config_path  # noqa: PLC0415 - 20 ms, with a server only

    for folder in jupyter_config_path():
        for app in _APPS:
            files = [Path(folder, f"jupyter{app}config.json")]
            files += sorted(Path(folder, f"jupyter{app}config.d").glob("*.json"))
            for file in files:
                if is_trusted(str(file)):
                    yield from _of_jupyter(_servers_in(file), language, str(file))


def _servers_in(file: Path) -> Any:
    try:
        found = load_json(read_plain(file, links=True))
        return found["LanguageServerManager"]["language_servers"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _from_entry_points(language: str) -> Iterator[ServerSpec]:
    """Yield the servers that jupyter-lsp's entry points find.

    A finder's `is_installed` is not called: some run their program in the working folder, where it
    would read what a model may have written.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads every package's metadata

    for point in entry_points(group=_GROUP):
        try:
            finder: Callable[[Any], Any] = point.load()
            if language in getattr(finder, "languages", (language,)):
                yield from _of_jupyter(
                    finder(_JupyterManager()), language, f"{_GROUP} {point.name}"
                )
        except Exception:
            continue


def _of_jupyter(specs: object, language: str, source: str) -> Iterator[ServerSpec]:
    for name, spec in specs.items() if isinstance(specs, Mapping) else ():
        if not isinstance(spec, Mapping) or language not in spec.get("languages", ()):
            continue
        argv = tuple(arg for arg in spec.get("argv") or () if isinstance(arg, str))
        program = shutil.which(argv[0]) if argv else None
        places = [arg for arg in (program, *argv[1:]) if arg and arg.startswith("/")]
        if program is None or not all(map(is_trusted, places)):
            continue
        settings = spec.get("workspace_configuration") or {}
        env = {str(key): str(value) for key, value in (spec.get("env") or {}).items()}
        argv = (program, *argv[1:])
        yield ServerSpec(str(name), argv, env, settings, _OPTIONS.get(language), source)


class _JupyterManager:
    """What finders of servers use of jupyter-lsp's manager."""

    def __init__(self) -> None:
        self.nodejs = shutil.which("node") or shutil.which("nodejs") or ""
        self.extra_node_roots: list[str] = []
        prefixes = [Path(sys.prefix), *([Path(self.nodejs).parents[1]] if self.nodejs else ())]
        self.node_roots = [str(folder) for each in prefixes for folder in (each / "lib", each)]

    def find_node_module(self, *parts: str) -> str | None:
        """Return the path of a file of an installed npm package."""
        found = (Path(root, "node_modules", *parts) for root in self.node_roots)
        return next((str(path) for path in found if path.exists()), None)
