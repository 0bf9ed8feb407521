"""A repository whose settings are hostile runs nothing outside the sandbox.

Each setting names a program that writes a file of its own, both into the workspace and beside it.
"""

import shutil
import sys

import pytest

from agent_magics.protocol.errors import RespondToModel
from agent_magics.symbols.servers.specs import ServerSpec, find_server, read_table
from agent_magics.symbols.types import Position
from tests.support.language_servers.project import project, run
from tests.support.language_servers.typescript import TABLE

pytestmark = pytest.mark.timeout(300)

SHELL = "#!/bin/sh\necho x > {inside} ; echo x > {outside}\nexit 1\n"
PYTHON = """\
for name in ({inside!r}, {outside!r}):
    try:
        open(name, "w").close()
    except OSError:
        pass
"""
SCRIPT = """\
for (const name of [{inside!r}, {outside!r}])
  try {{ require("fs").writeFileSync(name, "x"); }} catch {{ }}
module.exports = () => ({{ create: (info) => info.languageService }});
"""
CODE = {"python": ("a.py", "def f(): ...\n\n\nf()\n"), "typescript": ("a.ts", "let f = 1;\nf;\n")}
VENV = '{"venvPath": ".", "venv": "VENV", "pythonPath": "./VENV/bin/python", "stubPath": "stubs"}'

# server: ({the program's file: its text}, {a file of settings: its text}, which of them run where
# there is no sandbox).
TABLES = {
    "basedpyright": (
        {
            ".venv/bin/python": SHELL,
            "config/bin/python": SHELL,
            "project/bin/python": SHELL,
            "sitecustomize.py": PYTHON,
            "json.py": PYTHON,
            "basedpyright/__init__.py": PYTHON,
            "stubs/os/__init__.pyi": PYTHON,
        },
        {
            "pyrightconfig.json": VENV.replace("VENV", "config"),
            "pyproject.toml": '[tool.basedpyright]\nvenvPath = "."\nvenv = "project"\n',
            ".vscode/settings.json": '{"python.defaultInterpreterPath": "./config/bin/python"}',
        },
        set(),
    ),
    "pylsp": (
        {
            ".venv/bin/python": SHELL,
            "env/bin/python": SHELL,
            "plugin.py": PYTHON,
            "conftest.py": PYTHON,
            "pylsp/__init__.py": PYTHON,
            "pylsp_evil.py": PYTHON,
        },
        {
            "setup.cfg": "[pylsp]\nplugins.jedi.environment = ./env\n"
            "[flake8:local-plugins]\nextension = X = plugin:Plugin\npaths = .\n",
            "pyproject.toml": '[tool.pylsp.plugins.jedi]\nenvironment = "./env"\n',
            ".pylintrc": "[MAIN]\ninit-hook='import plugin'\nload-plugins=plugin\n",
            ".pylsp/config.json": '{"plugins": {"jedi": {"environment": "./env"}}}',
        },
        set(),
    ),
    "typescript": (
        {
            "node_modules/plugin/index.js": SCRIPT,
            "node_modules/typescript/lib/tsserver.js": SCRIPT,
            "node_modules/.bin/tsserver": SHELL,
            "node_modules/.bin/npm": SHELL,
            "node_modules/.hooks/index.js": SCRIPT,
        },
        {
            "tsconfig.json": '{"compilerOptions": {"plugins": [{"name": "plugin"}]}}',
            "node_modules/typescript/package.json": '{"name": "typescript", "version": "6.0.3"}',
            "node_modules/plugin/package.json": '{"name": "plugin", "main": "index.js"}',
            ".npmrc": "script-shell=./node_modules/.bin/npm\n",
        },
        {"node_modules/typescript/lib/tsserver.js"},
    ),
}


def _spec(server: str) -> ServerSpec:
    if server == "basedpyright":
        return find_server("python", {})
    if server == "typescript":
        return read_table({"typescript": TABLE})["typescript"]
    program = shutil.which("pylsp", path=sys.prefix + "/bin")
    return read_table({"python": {"command": program}})["python"]


def _ran(tmp_path, server: str) -> set[str]:
    """Ask a server about a hostile project; return the programs that could write a file."""
    work, canaries = tmp_path / "work", tmp_path / "canaries"
    programs, settings, _ = TABLES[server]
    for number, (name, text) in enumerate({**settings, **programs}.items()):
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in programs:
            places = {"inside": f"{work}/{number}.ran", "outside": f"{canaries}/{number}"}
            text = text.format(**places)
        path.write_text(text)
        path.chmod(0o755)
    canaries.mkdir()
    language = "typescript" if server == "typescript" else "python"

    async def ask():
        async with project(work, _spec(server)) as found:
            path = found.write(*CODE[language])
            provider = found.provider_of(language)
            for question in (
                provider.document_symbols(path),
                provider.references(path, Position(0, 4)),
                provider.definition(path, Position(0, 4)),
                provider.diagnostics(path),
            ):
                try:
                    await question
                except RespondToModel:  # a hostile program may well be a server that fails
                    assert TABLES[server][2]

    run(ask())
    numbers = {path.stem for path in (*canaries.iterdir(), *work.glob("*.ran"))}
    names = [*settings, *programs]
    return {names[int(number)] for number in numbers}


SERVERS = [
    "basedpyright",
    pytest.param("pylsp", marks=pytest.mark.long),  # another one of Python
    pytest.param("typescript", marks=pytest.mark.needs("server servers/typescript")),
]


@pytest.mark.soak
@pytest.mark.parametrize("server", SERVERS)
def test_without_a_sandbox_is_seen_what_would_run(tmp_path, monkeypatch, server):
    monkeypatch.setenv("AGENT_MAGICS_TIER", "0")
    assert _ran(tmp_path, server) == TABLES[server][2]


@pytest.mark.soak
@pytest.mark.needs("tier 1")
@pytest.mark.parametrize("server", SERVERS)
def test_nothing_runs_outside_the_sandbox(tmp_path, server):
    assert _ran(tmp_path, server) == set()
