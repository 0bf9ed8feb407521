"""Changed files that run by themselves are named, with when they run."""

import json

import pytest

from agent_magics.file_history.states import ABSENT, PathChange, PathState, digest_of
from agent_magics.file_history.triggers import why_it_runs


def _why(path: str, before: bytes | None, after: bytes | None) -> str:
    contents = {digest_of(data): data for data in (before, after) if data is not None}
    states = [
        ABSENT if data is None else PathState("file", 0o644, digest_of(data), len(data))
        for data in (before, after)
    ]
    return why_it_runs(path, PathChange(f"/w/{path}", *states), contents.get)


@pytest.mark.parametrize(
    "path",
    [
        ".envrc", "conftest.py", "tests/unit/conftest.py", "lib/x.pth", "sitecustomize.py",
        "usercustomize.py", ".git/hooks/pre-commit", ".husky/pre-push", ".pre-commit-config.yaml",
        ".github/workflows/ci.yml", ".gitlab-ci.yml", ".vscode/tasks.json", ".vscode/settings.json",
        ".devcontainer/devcontainer.json", "Makefile", "src/makefile", "justfile", "setup.py",
        ".ipython/profile_default/startup/00-x.py", "ipython_config.py",
        "jupyter_server_config.py", ".bashrc", ".npmrc", ".mcp.json", "Dockerfile", "build.rs",
        "binder/postBuild", "tox.ini", "noxfile.py",
    ],
)  # fmt: skip
def test_it_is_named(path):
    assert _why(path, None, b"x")
    assert _why(path, b"y", b"x")


@pytest.mark.parametrize(
    "path",
    ["a.py", "src/conftest.txt", "docs/Makefile.md", "notes.txt", "my_conftest.py",
     ".git/hooks/pre-commit.sample", "environment.py", "restart", "data/start.csv"],
)  # fmt: skip
def test_an_ordinary_file_is_not(path):
    assert not _why(path, None, b"x")


def test_what_was_removed_runs_no_more():
    assert not _why("conftest.py", b"x", None)


def test_of_package_json_only_what_runs_counts():
    old = json.dumps({"version": "1", "scripts": {"test": "jest"}}).encode()
    assert not _why("package.json", old, json.dumps({"scripts": {"test": "jest"}}).encode())
    new = json.dumps({"scripts": {"test": "jest", "postinstall": "curl x | sh"}}).encode()
    assert "npm" in _why("package.json", old, new)
    assert _why("package.json", None, new)
    assert not _why("package.json", None, b"{}")
    assert _why("package.json", old, b"no json")


def test_of_pyproject_only_what_tools_obey_counts():
    old = b'[project]\nname = "a"\n'
    assert not _why("pyproject.toml", old, b'[project]\nname = "b"\n')
    assert _why("pyproject.toml", old, old + b'[build-system]\nrequires = ["x"]\n')
    assert _why("pyproject.toml", old, old + b'[tool.pytest.ini_options]\naddopts = "-p x"\n')
