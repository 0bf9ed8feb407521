"""Detects changed files that other programs execute later, which a person should review first."""

import re
from collections.abc import Callable
from typing import Any

from agent_magics.file_history.states import PathChange, PathState
from agent_magics.files.plain_files import load_json, load_toml

# Patterns of paths and when the file is run; the first match applies.
_PLACES = (
    (r"(?:^|/)\.envrc$", "direnv runs it when a shell enters the folder"),
    (r"(?:^|/)conftest\.py$", "pytest imports it before any test"),
    (r"\.pth$", "Python runs its import lines at every start"),
    (r"(?:^|/)(?:site|user)customize\.py$", "Python imports it at every start"),
    (r"(?:^|/)(?:noxfile|setup|fabfile|tasks)\.py$", "a build or task tool runs it"),
    (r"(?:^|/)(?:\.git|\.husky|\.githooks)/(?:hooks/)?[^/]+$", "git runs its hooks"),
    (r"(?:^|/)\.pre-commit-(?:config|hooks)\.yaml$", "pre-commit runs what it names at a commit"),
    (r"(?:^|/)\.lefthook\.ya?ml$|(?:^|/)lefthook\.ya?ml$", "lefthook runs it at a commit"),
    (r"(?:^|/)\.gitattributes$|(?:^|/)\.gitmodules$", "git chooses filters and sources by it"),
    (r"(?:^|/)\.github/(?:workflows|actions)/", "GitHub runs it after a push"),
    (r"(?:^|/)(?:\.gitlab-ci\.yml|\.travis\.yml|Jenkinsfile|azure-pipelines\.yml)$", "CI runs it"),
    (r"(?:^|/)\.circleci/config\.yml$", "CI runs it"),
    (r"(?:^|/)\.vscode/(?:tasks|launch|settings)\.json$", "VS Code runs or obeys it on opening"),
    (r"(?:^|/)\.devcontainer(?:/|\.json$)", "an editor builds and runs the container it names"),
    (r"(?:^|/)\.idea/", "the editor obeys it on opening"),
    (r"(?:^|/)(?:GNUmakefile|[Mm]akefile|justfile|Rakefile|Taskfile\.ya?ml)$", "make runs it"),
    (r"(?:^|/)profile_[^/]+/startup/", "IPython runs it at the start of every kernel"),
    (r"(?:^|/)(?:ipython|ipython_kernel)_config\.py$", "IPython runs it at every start"),
    (r"(?:^|/)jupyter_[a-z_]*config\.(?:py|json)$", "Jupyter reads it at every start"),
    (r"(?:^|/)\.(?:bashrc|bash_profile|profile|zshrc|zshenv|bash_aliases)$", "a shell runs it"),
    (r"(?:^|/)(?:\.npmrc|\.yarnrc(?:\.yml)?|\.pip/pip\.conf|pip\.conf)$", "installs obey it"),
    (r"(?:^|/)\.mcp\.json$|(?:^|/)\.agent_magics/", "agents start programs that it names"),
    (r"(?:^|/)(?:postBuild|start|apt\.txt|environment\.yml)$", "Binder runs it at a start"),
    (r"(?:^|/)Dockerfile[^/]*$|(?:^|/)(?:docker-)?compose\.ya?ml$", "container builds run it"),
    (r"(?:^|/)build\.rs$", "cargo runs it at every build"),
    (r"(?:^|/)(?:tox\.ini|pytest\.ini|setup\.cfg)$", "test and build tools obey it"),
    (r"(?:^|/)gradlew$|(?:^|/)build\.gradle(?:\.kts)?$|(?:^|/)mvnw$", "the build runs it"),
)
_TRIGGERS = [(re.compile(pattern), why) for pattern, why in _PLACES]


def why_it_runs(path: str, change: PathChange, content: Callable[[str], bytes | None]) -> str:
    """Return when a changed file is run by other programs; "" if it is not.

    Args:
        path: for display, relative to the workspace.
        change: its change; a removed file is not run.
        content: returns a stored content by its digest.
    """
    if change.after.kind in ("absent", "folder"):
        return ""
    name = path.rpartition("/")[2]
    reader = _READERS.get(name)
    if reader is not None:
        what = [_read(reader, content, state) for state in (change.before, change.after)]
        return reader[1] if what[0] != what[1] else ""
    if path.endswith((".sample", ".md", ".rst", ".txt")) and name != "apt.txt":
        return ""
    return next((why for pattern, why in _TRIGGERS if pattern.search(path)), "")


def _scripts_of(data: Any) -> Any:
    return data.get("scripts"), data.get("bin"), data.get("workspaces")


def _hooks_of(data: Any) -> Any:
    project = data.get("project", {})
    return (
        *(data.get("build-system"), data.get("tool")),
        *(project.get("scripts"), project.get("entry-points")),
    )


_Reader = tuple[Callable[[str], Any], str, Callable[[Any], Any]]
_READERS: dict[str, _Reader] = {
    "package.json": (load_json, "npm runs its scripts, some at an install", _scripts_of),
    "composer.json": (load_json, "composer runs its scripts", _scripts_of),
    "pyproject.toml": (load_toml, "builds and tools obey what changed in it", _hooks_of),
}


def _read(reader: _Reader, content: Callable[[str], bytes | None], state: PathState) -> Any:
    """Return the part of a file that makes programs run; all of it if it cannot be parsed."""
    if state.kind == "absent":
        return reader[2]({})
    data = content(state.digest) if state.digest else None
    if data is None:
        return state
    try:
        return reader[2](reader[0](data.decode("utf-8")))
    except (ValueError, AttributeError, RecursionError):
        return data
