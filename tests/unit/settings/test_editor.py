"""Settings of JupyterLab's editor: their place among the sources, and what they never are."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_magics.protocol.errors import FatalError
from agent_magics.settings.editor import read_editor_settings, report
from agent_magics.settings.sources import EDITOR, Source, resolve
from agent_magics.settings.table import settings_in_editor
from agent_magics.settings.validation import validated

SCHEMA = Path(__file__).parents[3] / "labextension/schema/settings.json"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    report({})


def test_it_goes_before_the_persons_file_and_behind_the_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "agent-magics"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text("max_turns = 3\nmax_tokens = 9\n")
    report({"max_turns": 5, "approval": "untrusted"})
    resolved = resolve([Source("%config", {"approval": "never"})])
    assert (resolved.settings.max_turns, resolved.origins["max_turns"]) == (5, EDITOR)
    assert (resolved.settings.max_tokens, resolved.settings.approval) == (9, "never")
    report({})
    assert resolve([]).settings.max_turns == 3


def test_keys_servers_and_hooks_never_come_from_there() -> None:
    report({"api_key": "sk-x", "mcp_servers": {"x": {"command": "y"}}, "hooks": [], "cwd": "/"})
    assert read_editor_settings() == {}
    assert not {"api_key", "mcp_servers", "hooks", "cwd", "tools"} & set(settings_in_editor())


@pytest.mark.parametrize("nothing", [None, [], "x", {1: 2}])
def test_what_is_no_settings_sets_nothing(nothing: object) -> None:
    report(nothing)
    assert read_editor_settings() == {}


def test_an_invalid_value_is_told_with_its_place() -> None:
    report({"approval": "maybe"})
    with pytest.raises(FatalError, match="In JupyterLab's settings editor: approval='maybe'"):
        resolve([])


def test_the_defaults_of_the_editor_are_values_of_the_settings() -> None:
    properties = json.loads(SCHEMA.read_text(encoding="utf-8"))["properties"]
    assert set(properties) == set(settings_in_editor())
    for name, each in properties.items():
        if "default" in each:
            validated({name: each["default"]})
